"""Links with a delay: a hop in the middle of the cable, in a namespace of its own.

    A == wire0a  wire0b == B        each of the two passes every frame on to the other's egress, where netem delays it

Rate and delay never share an interface: netem in front of HTB holds a sender's frames where TCP counts them as not yet
sent, and under HTB its queue is the delay line. Here A and B are shaped as ever, and the delay is the far side's. netem's
limit is the length of the line, not a queue: it must hold all that is under way, or it loses frames like a full link.
"""

import math
from collections.abc import Iterator

from topologies import namespaces, netlink
from topologies.errors import EmulationError, TopologyError
from topologies.fabric import Link, Port
from topologies.netlink import Request
from topologies.shaping import Finding

NAMESPACE = "wires"
_LIMIT_MARGIN = 1.5
_SMALLEST_FRAME = 64
_LEAST_LIMIT = 1000
_TICK_NS = 64


def names(link: Link) -> tuple[str, str]:
    """The two interfaces in the middle: the one cabled to the link's first end, the one cabled to the second."""
    return f"wire{link.index}a", f"wire{link.index}b"


def far_name(link: Link, port: Port) -> str:
    """The middle interface on the other side of the hop: down, it takes the carrier from the port's peer."""
    return names(link)[port == link.a]


def delay_ticks(link: Link) -> int:
    """As netem stores it, in ticks of 64 ns."""
    return round(link.delay_us * 1e3 / _TICK_NS)


def line_frames(link: Link) -> int:
    """How many of the smallest frames may be under way, and half as many again."""
    under_way = link.rate_mbps * link.delay_us / 8 / _SMALLEST_FRAME
    return max(_LEAST_LIMIT, math.ceil(_LIMIT_MARGIN * under_way))


def requests(link: Link, index: dict[str, int]) -> Iterator[Request]:
    """The hop, between interfaces that exist, in their namespace."""
    a, b = names(link)
    for here, there in ((a, b), (b, a)):
        yield netlink.netem(index[here], here, delay_ticks(link), line_frames(link))
        yield from netlink.pass_on(index[here], index[there], here)
        yield netlink.set_link(index[here], here, up=True)


def findings(links: list[Link]) -> Iterator[Finding]:
    """Every middle interface that does not delay as asked; for the calling thread's namespace."""
    held = netlink.read_netem()
    for link in links:
        for name in names(link):
            asked, found = delay_ticks(link), held.get(name)
            if asked != found:
                yield Finding(name, "delay", _us(asked), "none" if found is None else _us(found))


def require_netem() -> None:
    """Refuse delays, before anything is made, on a kernel without netem."""
    try:
        namespaces.scratch(lambda: netlink.apply([netlink.netem(1, "lo", 1, 1)]))
    except EmulationError as error:
        raise TopologyError(
            f"links have a delay, and this kernel has no netem ({error}): leave the delay out, or install the module "
            "sch_netem (on Ubuntu in linux-modules-extra-$(uname -r); Debian's kernels have it)"
        ) from None


def _us(ticks: int) -> str:
    return f"{ticks * _TICK_NS / 1e3:g} us"
