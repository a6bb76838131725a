"""How long the controller computes: all rules of a fabric of 1024 hosts, and those after each of some failures."""

import time

from benchmarks.figure import Figure, Target, figure
from controller import policy, rules_of
from topologies import topology

_FABRIC, _POLICY = "fat-tree:k=16", "ecmp"
_ALL = Target("ours", high=2)
_FAILURE = Target("ours", high=0.5)


def rules(*, quick: bool) -> list[Figure]:
    """CPU seconds, so that what else the machine does counts little. The first computation remembers nothing."""
    fabric, chosen = topology(_FABRIC).build(), policy(_POLICY)
    begun = time.process_time()
    intact = rules_of(chosen, fabric)
    all_s = time.process_time() - begun
    between_switches = [x for x in fabric.links if not any(fabric.node(port.node).is_host for port in x.ports)]
    failures = between_switches[:: len(between_switches) // (4 if quick else 16)]
    begun = time.process_time()
    for link in failures:
        rules_of(chosen, fabric, frozenset({link.index}))
    each_s = (time.process_time() - begun) / len(failures)
    n_rules = sum(len(its_rules.flows) for its_rules in intact.values())
    note = f"{_POLICY} on {_FABRIC}: {n_rules} rules on {len(intact)} switches"
    return [
        figure("rules, 1024 hosts", all_s, "s", _ALL, note=note),
        figure("rules, after a failure", each_s, "s", _FAILURE, note=f"mean of {len(failures)} links, one by one"),
    ]
