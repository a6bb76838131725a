"""End-to-end credits in place of PFC: how many packets of each queue pair may be under way so that no queue overflows. Pure.

PFC stops the sender at the other end of a link whose queue is full, and with it whoever else sends over that link. Open vSwitch
has no such frames, so this stands in for it: a queue pair starts with its credits, a packet takes one and its acknowledgement
gives it back. Each link's queue is divided among the queue pairs that cross it, whether they send or not, so nothing is ever
dropped, nobody is stopped for another's sake, and a queue pair that is alone on a link gets less of its queue than PFC would
let it use.
"""

from collections import defaultdict
from collections.abc import Mapping

from lab.errors import LabError
from lab.model.wire import Way
from topologies.shaping import Shape
from traffic.framing import Framing
from traffic.schedule import Connection

Paths = Mapping[Connection, Way]


def credits_of(
    paths: Paths, ack_paths: Paths, shapes: Mapping[str, Shape], framing: Framing, most: int
) -> dict[Connection, int]:
    """Packets of each queue pair, at least 1, and `most` where the queues hold more. paths, ack_paths: the egress ports that its
    data and its acknowledgements cross; shapes: of the links, by interface.

    Raises LabError where a queue does not hold one packet of each.
    """
    # The worst that is under way: full packets that each begin a message, and an acknowledgement for every one.
    n_bytes: dict[str, int] = defaultdict(int)
    for ways, frame_bytes in (
        (paths, framing.frame_bytes + framing.first_header_bytes),
        (ack_paths, framing.ack_bytes),
    ):
        for ports in ways.values():
            for port in ports:
                n_bytes[port.intf] += frame_bytes
    fit = {intf: shapes[intf].limit_bytes // n for intf, n in n_bytes.items() if intf in shapes}
    crowded = min(fit, key=lambda intf: fit[intf], default="")
    if crowded and not fit[crowded]:
        limit, asked = shapes[crowded].limit_bytes, n_bytes[crowded]
        raise LabError(
            f"--lossless credits: the queue pairs that cross {crowded} have {asked:,} bytes with one packet each, its queue "
            f"holds {limit:,}: use a longer --queue, fewer --qps or a smaller --path-mtu"
        )
    return {
        c: min([most, *(fit[port.intf] for port in (*ports, *ack_paths[c]) if port.intf in fit)])
        for c, ports in paths.items()
    }
