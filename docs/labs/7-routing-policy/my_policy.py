"""Lab 7: a routing policy of your own, destination modulo k. Only `choose` is missing."""

from controller.actions import Output
from controller.match import is_in
from controller.prefix_rules import deliver, rule_toward
from controller.routing import next_hops, places, switch_of_address
from controller.rules import SwitchRules
from topologies.fabric import Fabric


def choose(number: int, ports: tuple[int | None, ...]) -> int:
    """The port for destination `number` (0 for the first host, 1 for the next ...).

    ports: those on shortest paths, each in the place it has when nothing is down; None where a dead one was.
    """
    return next(port for port in ports if port is not None)  # all destinations over the first: yours will be better


def d_mod_k(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    """down: the links (`Link.index`) that are dead. Returns every switch's rules."""
    intact, usable = next_hops(fabric), next_hops(fabric, down)
    rules = {}
    for switch in fabric.switches:
        flows = deliver(fabric, switch.name)
        for number, (address, owner) in enumerate(switch_of_address(fabric).items()):
            for prefix, ports in usable[switch.name].items():
                if owner != switch.name and is_in(address, prefix):
                    by_place = places(intact[switch.name].get(prefix, ()), ports)
                    flows.append(rule_toward(address, Output(choose(number, by_place))))
        rules[switch.name] = SwitchRules(tuple(flows))
    return rules
