"""Links with a delay: a hop in the middle of the cable, in a namespace of its own.

    A == wire0a  wire0b == B        each of the two passes every frame on to the other's egress, where netem delays it

Where the kernel has no netem, and where the delay varies (netem then swaps frames, which a cable does not), a process reads
the frames of one and sends them through the other: `topologies.hop`.

Rate and delay never share an interface: netem in front of HTB holds a sender's frames where TCP counts them as not yet
sent, and under HTB its queue is the delay line. Here A and B are shaped as ever, and the delay is the far side's. netem's
limit is the length of the line, not a queue: it must hold all that is under way, or it loses frames like a full link.
"""

import math
from collections.abc import Iterator

from topologies import namespaces, netlink, netlink_readings, netlink_requests
from topologies.errors import EmulationError, TopologyError
from topologies.fabric import Fabric, Link, Port
from topologies.netlink import Request
from topologies.shaping import Finding

NAMESPACE = "wires"
# What a process wakes up for in time: late by 0.1 ms (median) it is within 10 % of the delay.
HOP_LEAST_DELAY_US = 1000.0
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
    """netem's hop, between interfaces that exist, in their namespace."""
    a, b = names(link)
    for here, there in ((a, b), (b, a)):
        yield netlink_requests.netem(index[here], here, delay_ticks(link), line_frames(link))
        yield from netlink_requests.pass_on(index[here], index[there], here)
        yield netlink_requests.set_link(index[here], here, up=True)


def findings(links: list[Link]) -> Iterator[Finding]:
    """Every middle interface whose netem does not delay as asked; for the calling thread's namespace."""
    held = netlink_readings.read_netem()
    for link in links:
        for name in names(link):
            asked, found = delay_ticks(link), held.get(name)
            if asked != found:
                yield Finding(name, "delay", _us(asked), "none" if found is None else _us(found))


def drops(links: list[Link]) -> dict[str, int]:
    """Frames that the middle lost, by the interface that had sent them; for the calling thread's namespace."""
    queues, counters = netlink_readings.qdisc_drops(), netlink_readings.link_counters()
    lost = {name: queues.get(name, 0) + counters[name].tx_dropped for link in links for name in names(link)}
    # What leaves the middle toward one end came from the other.
    return {port.intf: lost[far_name(link, port)] for link in links for port in link.ports}


def has_netem() -> bool:
    """Of this kernel. Needs root."""
    try:
        namespaces.scratch(lambda: netlink.apply([netlink_requests.netem(1, "lo", 1, 1)]))
    except EmulationError:
        return False
    return True


def require_hop(fabric: Fabric, jitter_us: float) -> None:
    """Refuse, before anything is made, what the hop cannot delay as asked."""
    for link in fabric.links:
        if 0 < link.delay_us < HOP_LEAST_DELAY_US:
            raise TopologyError(
                f"link {fabric.label(link)} has an emulated delay of {link.delay_us:g} us: without the kernel's netem, and "
                f"with jitter, {HOP_LEAST_DELAY_US:g} us is the least: use a longer delay, a --scale RATE:SIZE with a "
                "larger ratio, or the kernel module sch_netem"
            )
        if 0 < link.delay_us < jitter_us:
            raise TopologyError(
                f"link {fabric.label(link)} has a delay of {link.delay_us:g} us and a jitter of {jitter_us:g} us: a frame "
                "cannot arrive before it was sent, use a jitter up to the delay"
            )


def cables(links: list[Link], jitter_us: float) -> list[tuple[str, str, float, float]]:
    """The links as the hop takes them: both middle interfaces, delay and jitter. Scale-up links have no jitter."""
    return [(*names(link), link.delay_us, jitter_us if link.kind != "scale-up" else 0.0) for link in links]


def opening(links: list[Link], index: dict[str, int]) -> list[Request]:
    """Both middle interfaces of each link up, for the hop."""
    return [netlink_requests.set_link(index[name], name, up=True) for link in links for name in names(link)]


def _us(ticks: int) -> str:
    return f"{ticks * _TICK_NS / 1e3:g} us"
