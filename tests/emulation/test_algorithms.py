"""Every algorithm of every collective on one real fabric: 8 accelerators in two servers, values right, bytes as planned.

The rails carry them, joined by a spine, so that schedules with and without HB domains find their ways.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from lab.machine.bringup import lab_up
from lab.machine.sandbox import RUN_DIR
from lab.planning.experiment import load
from lab.planning.plan import Plan, endpoints, plan
from lab.planning.scale import Scale
from lab.progress import Progress
from tests.emulation.netns_sandbox import in_sandbox
from traffic import COLLECTIVES
from traffic.replay import Replay
from traffic.transports.tcp import TcpTransport
from traffic.values import fill, wrong

SIZE = 40_000
TOPOLOGY = "rail-optimised:servers=2,gpus_per_server=4,spines=1"
# They take hosts of their own beside the ranks'.
HELPED = {("all_reduce", "in-network"), ("all_reduce", "parameter-server")}


def _planned(collective: str, algorithm: str) -> Plan:
    settings = {"topology": TOPOLOGY, "link_rate": "100Mbit", "scale": "1", "collective": collective}
    return plan(load(None, settings | {"algorithm": algorithm, "min_bytes": str(SIZE), "max_bytes": str(SIZE)}))


def _all() -> Iterator[tuple[str, str]]:
    yield from ((c, a) for c, algorithms in COLLECTIVES.items() for a in algorithms if (c, a) not in HELPED)


def _run_all() -> dict[str, dict[str, Any]]:
    """'all_reduce ring' -> its wrong elements, and every element moved over all interfaces of the hosts, planned and counted."""
    RUN_DIR.mkdir()
    found = {}
    fabric = _planned("all_reduce", "ring").fabric
    with lab_up(fabric, policy="ecmp", mtu=9000, progress=Progress()) as lab:
        netns = {h.name: str(lab.net.netns_path(h.name)) for h in fabric.hosts}
        own = {p.intf for h in fabric.hosts for p in fabric.ports_of(h.name)}

        def sent() -> int:
            return sum(counters.tx_bytes for intf, counters in lab.net.link_counters().items() if intf in own)

        for collective, algorithm in _all():
            planned = _planned(collective, algorithm)
            schedule, (size,) = planned.schedule, planned.sizes(Scale())
            buffers = [np.zeros(size.count, dtype=np.float32) for _ in range(schedule.n_ranks)]
            for rank, buffer in enumerate(buffers):
                fill(buffer, schedule, rank)
            with TcpTransport(endpoints(planned, fabric, netns), schedule.connections) as transport:
                before = sent()
                Replay(schedule, size.count, transport).run(buffers)
                counted = sent() - before
            found[f"{collective} {algorithm}"] = {
                "wrong": sum(wrong(buffer, schedule, rank) for rank, buffer in enumerate(buffers)),
                "payload": int(planned.message_bytes(size.count).sum()),
                "counted": counted,
                "sends": len(schedule),
            }
    return found


def test_every_algorithm_gives_the_right_values_over_real_links() -> None:
    found = in_sandbox(_run_all, timeout_s=180)
    assert found.keys() == {f"{c} {a}" for c, a in _all()}
    for name, row in found.items():
        assert row["wrong"] == 0, name
        # At least the payload, and headers of 66 bytes for a frame and for an acknowledgement of each send.
        assert row["payload"] <= row["counted"] <= 1.1 * row["payload"] + 400 * row["sends"], (name, row)
