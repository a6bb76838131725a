"""What is wrong with an emulated fabric, and where: evidence tables in, ranked findings out. Pure.

Each finding names a kind and an element as the fabric's labels do. Causes come before what follows from them: what the kernel
and Open vSwitch hold (wiring, shaping, carrier) before what was counted (losses, circuits), and that before what only took
time (CPU, ranks, rates), since a machine that is too busy makes links look slow, never the other way round.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from topologies import Fabric, Port
from topologies.inspected import Inspection
from topologies.shaping import Finding
from topologies.units import format_rate

Kind = Literal[
    "wrong wiring", "unshaped link", "fast link", "slow link", "misshaped link", "link down", "dark circuit", "lossy link",
    "CPU hog", "slow rank",
]  # fmt: skip
# What it does to a number: the fabric was not the asked one, or conditions were not.
_DEGRADES: frozenset[Kind] = frozenset({"CPU hog", "slow rank"})
# Frames by which two counters may differ that are not read at one moment.
STRAY_FRAMES = 2
# Over what a bucket's burst explains: a core that is taken away while frames leave lets some go after their time (seen on two
# busy cores: 2 frames in half a second).
MAX_EXCESS = 1.10
# Cores that other processes used; less where nothing was idle, since what they had there was the lab's.
MAX_OTHER_CORES, MAX_OTHER_CORES_SATURATED, SATURATED_IDLE_SHARE = 0.5, 0.25, 0.01
# Of the time, that a rank's process was stopped; times the median rank's own CPU time, and of the time at least.
MAX_STOPPED_SHARE, SLOW_RANK_RATIO, SLOW_RANK_SHARE = 0.05, 1.5, 0.1


@dataclass(frozen=True)
class Diagnosis:
    """One finding. element: a link's direction, a circuit, a rank, a process."""

    kind: Kind
    element: str
    detail: str

    @property
    def is_grave(self) -> bool:
        return self.kind not in _DEGRADES

    def __str__(self) -> str:
        return f"{self.kind} {self.element}: {self.detail}"


@dataclass(frozen=True)
class LinkUse:
    """One direction of a link, by its egress interface, while something was measured.

    sent: frames; lost_behind: by the kernel behind it; filtered: dropped by programs that hang on it; swallowed: that came to
    them and were never seen again, less those that were to be lost; arrived: frames at the other end, None = not counted
    apart from `sent`. excess: the most that it carried in some time, over what its rate and burst allow in that time; 1 or
    less is right.
    """

    intf: str
    sent: int = 0
    lost_behind: int = 0
    filtered: int = 0
    swallowed: int = 0
    arrived: int | None = None
    excess: float = 0.0
    excess_mbps: float = 0.0


@dataclass(frozen=True)
class HostUse:
    """Packets that a host's own stack lost: between a NIC and the transport, and the other way."""

    host: str
    lost_in: int = 0
    lost_out: int = 0


@dataclass(frozen=True)
class CircuitUse:
    """One way of a circuit. source, target: cables, as 'leaf1:5'; n_in, n_out: frames, since dark_since_s if it went dark."""

    ocs: str
    source: str
    target: str
    n_in: int
    n_out: int
    dark_since_s: float | None


@dataclass(frozen=True)
class RankUse:
    """Of a rank's processes: shares of the time in which they ran, and were stopped."""

    rank: int
    host: str
    busy_share: float
    stopped_share: float


@dataclass(frozen=True)
class Stranger:
    """A process that is not the lab's. cores: that it used."""

    name: str
    pid: int
    cores: float


@dataclass(frozen=True)
class Tables:
    """All that is known. other_cores: that processes outside every lab used, idle_share: of all cores; None = not observed."""

    fabric: Fabric
    inspection: Inspection | None = None
    shaping: Sequence[Finding] = ()
    links: Sequence[LinkUse] = ()
    hosts: Sequence[HostUse] = ()
    circuits: Sequence[CircuitUse] = ()
    ranks: Sequence[RankUse] = ()
    other_cores: float | None = None
    strangers: Sequence[Stranger] = ()
    idle_share: float | None = None


def diagnose(t: Tables) -> tuple[Diagnosis, ...]:
    """Everything that is found, causes first, each element's first finding only."""
    found = [
        *_wiring(t), *_shaping(t), *_carrier(t), *_too_fast(t), *_dark(t), *_losses(t), *_stopped_ranks(t),
        *_hog(t), *_slow_ranks(t),
    ]  # fmt: skip
    first: dict[str, Diagnosis] = {}
    for one in found:
        first.setdefault(one.element, one)
    return tuple(first.values())


# -- what is held ---------------------------------------------------------------------------------------------------


def _wiring(t: Tables) -> Iterator[Diagnosis]:
    """Ports in the wrong place of a switch, and cables with the wrong end."""
    if t.inspection is None:
        return
    plugged = t.inspection.plugged
    for switch in () if plugged is None else t.fabric.switches:
        for port in t.fabric.ports_of(switch.name):
            found = plugged.get(port.intf) if plugged else None
            if found is None:
                yield _wrong(t, port, f"{port.intf} is in no port of {switch.name}, should be in {port.number}")
            elif found.bridge != switch.name or found.number not in (port.number, -1):
                where = f"port {found.number} of {found.bridge or 'no switch'}"
                yield _wrong(t, port, f"{port.intf} is in {where}, should be in {port.number} of {switch.name}")
    for link in t.fabric.links:
        for port in link.ports:
            at = t.inspection.peer(port.intf)
            for expected in t.inspection.expected(port.intf):
                if at != expected:
                    yield _wrong(t, port, f"{port.intf} is cabled to {at or 'nothing'}, not to {expected}")


def _wrong(t: Tables, port: Port, detail: str) -> Diagnosis:
    return Diagnosis("wrong wiring", t.fabric.label(t.fabric.link_of(port.intf)), detail)


def _shaping(t: Tables) -> Iterator[Diagnosis]:
    for f in t.shaping:
        yield Diagnosis(_shaping_kind(f), _label(t.fabric, f.intf), f"{f.what} should be {f.expected}, is {f.found}")


def _shaping_kind(f: Finding) -> Kind:
    if f.what == "qdisc":
        return "unshaped link"
    if f.what in ("rate", "ceil"):
        asked, found = (text.split()[0] for text in (f.expected, f.found))
        return "unshaped link" if found == "none" else "slow link" if float(found) < float(asked) else "fast link"
    return "misshaped link"


def _carrier(t: Tables) -> Iterator[Diagnosis]:
    if t.inspection is None:
        return
    for link in t.fabric.links:
        down = [port.intf for port in link.ports if (end := t.inspection.ends.get(port.intf)) and not end.carrier]
        if down:
            kind: Kind = "dark circuit" if link.kind == "circuit" else "link down"
            yield Diagnosis(kind, t.fabric.label(link), f"no carrier at {', '.join(down)}")


# -- what was counted -----------------------------------------------------------------------------------------------


def _too_fast(t: Tables) -> Iterator[Diagnosis]:
    for link in sorted(t.links, key=lambda one: -one.excess):
        if link.excess > MAX_EXCESS:
            rate, carried = t.fabric.link_of(link.intf).rate_mbps, float(f"{link.excess_mbps:.3g}")
            times = f"{link.excess:.2f} times what {format_rate(rate)} allow"
            detail = f"carried {format_rate(carried)} for a while, {times}"
            yield Diagnosis("unshaped link", _label(t.fabric, link.intf), detail)


def _dark(t: Tables) -> Iterator[Diagnosis]:
    for c in sorted(t.circuits, key=lambda one: -one.n_in):
        if c.n_in - c.n_out > STRAY_FRAMES:
            since = "" if c.dark_since_s is None else f" after {c.dark_since_s:.1f} s"
            detail = f"{c.n_in:,} frames went into {c.ocs}{since}, {c.n_out:,} came out"
            yield Diagnosis("dark circuit", f"{c.source}->{c.target}", detail)


def _losses(t: Tables) -> Iterator[Diagnosis]:
    """Where frames went that no queue dropped and nobody asked to lose; most first."""
    found = [*_link_losses(t), *_host_losses(t)]
    for _, one in sorted(found, key=lambda both: -both[0]):
        yield one


def _link_losses(t: Tables) -> Iterator[tuple[int, Diagnosis]]:
    for link in t.links:
        silently = max(link.swallowed - link.filtered - STRAY_FRAMES, 0)
        on_the_way = 0 if link.arrived is None else max(link.sent - link.arrived - STRAY_FRAMES, 0)
        lost = link.filtered + silently + link.lost_behind + on_the_way
        if lost:
            parts = {
                "by a filter that was not asked for": link.filtered + silently,
                f"behind {link.intf}": link.lost_behind,
                "between its ends": on_the_way,
            }
            detail = ", ".join(f"{n:,} {where}" for where, n in parts.items() if n)
            yield lost, Diagnosis("lossy link", _label(t.fabric, link.intf), f"{lost:,} frames lost: {detail}")


def _host_losses(t: Tables) -> Iterator[tuple[int, Diagnosis]]:
    for host in t.hosts:
        nic = t.fabric.scale_out_port(host.host)
        for lost, egress, where in (
            (host.lost_in, t.fabric.peer(nic), "after its NIC"),
            (host.lost_out, nic, "before its NIC"),
        ):
            if lost > STRAY_FRAMES:
                detail = f"{lost:,} packets lost inside {host.host}, {where}"
                yield lost, Diagnosis("lossy link", _label(t.fabric, egress.intf), detail)


# -- what took time -------------------------------------------------------------------------------------------------


def _hog(t: Tables) -> Iterator[Diagnosis]:
    saturated = t.idle_share is not None and t.idle_share < SATURATED_IDLE_SHARE
    if t.other_cores is None or t.other_cores <= (MAX_OTHER_CORES_SATURATED if saturated else MAX_OTHER_CORES):
        return
    most = sorted(t.strangers, key=lambda one: -one.cores)[:3]
    who = ", ".join(f"{one.name} ({one.pid}) {one.cores:.1f}" for one in most if one.cores > 0.05)
    name = f"{most[0].name} ({most[0].pid})" if most else "outside the lab"
    yield Diagnosis("CPU hog", name, f"other processes used {t.other_cores:.1f} cores{f': {who}' if who else ''}")


def _stopped_ranks(t: Tables) -> Iterator[Diagnosis]:
    for one in sorted(t.ranks, key=lambda one: -one.stopped_share):
        if one.stopped_share > MAX_STOPPED_SHARE:
            detail = f"its process was stopped {one.stopped_share:.0%} of the time"
            yield Diagnosis("slow rank", f"{one.rank} ({one.host})", detail)


def _slow_ranks(t: Tables) -> Iterator[Diagnosis]:
    busy = sorted(rank.busy_share for rank in t.ranks)
    median = busy[(len(busy) - 1) // 2] if busy else 0.0
    for one in sorted(t.ranks, key=lambda one: -one.busy_share):
        if one.busy_share > max(SLOW_RANK_RATIO * median, median + SLOW_RANK_SHARE):
            detail = f"it computed {one.busy_share:.0%} of the time, the median rank {median:.0%}"
            yield Diagnosis("slow rank", f"{one.rank} ({one.host})", detail)


def _label(fabric: Fabric, intf: str) -> str:
    """'leaf1->spine2 (leaf1-eth3)'; what is not a link's end has only its name."""
    port = next((p for link in _links_of(fabric, intf) for p in link if p.intf == intf), None)
    return intf if port is None else f"{fabric.direction(port)} ({intf})"


def _links_of(fabric: Fabric, intf: str) -> Iterable[tuple[Port, Port]]:
    try:
        return (fabric.link_of(intf).ports,)
    except KeyError:
        return ()


def as_dicts(found: Iterable[Diagnosis]) -> list[dict[str, Any]]:
    """For the manifest."""
    return [{"kind": one.kind, "element": one.element, "detail": one.detail} for one in found]
