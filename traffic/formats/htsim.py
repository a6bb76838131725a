"""htsim's connection matrices (github.com/Broadcom/csg-htsim, sim/datacenter/connection_matrix.cpp and sim/trigger.h).

    Nodes 4
    Connections 2
    Triggers 1
    0->1 id 1 start 0 size 1000 recv_done_trigger 7
    1->2 id 2 trigger 7 size 1000
    trigger id 7 oneshot

Starts are in ps. A trigger starts flows when a flow is done at its sender (send_done_trigger) or receiver (recv_done_trigger):
only flows from the host where that happens, as nothing else would tell another host of it. At a sender a flow is done when it
has left, where htsim waits for the last acknowledgement. oneshot: one event, all flows; barrier: as many events as it counts,
all flows; multishot: each event the next flow. Flows of one pair of hosts have a connection each.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from traffic.errors import TrafficError
from traffic.formats.source import MAX_CALC_NS, MAX_MESSAGE_BYTES, MAX_OPERATIONS, MAX_RANKS, Source, shown
from traffic.messages import MessageBuilder
from traffic.schedule import Schedule

_HEADS = {"Nodes": MAX_RANKS, "Connections": MAX_OPERATIONS, "Triggers": MAX_OPERATIONS, "Failures": MAX_OPERATIONS}
_MAX_ID = 2**31 - 1
_KINDS = ("oneshot", "multishot", "barrier")


@dataclass
class _Flow:
    """start_ps: None if a trigger starts it."""

    line: int
    src: int
    dst: int
    id: int = 0
    size: int = 0
    start_ps: int | None = None
    trigger: int = 0
    send_done: int = 0
    recv_done: int = 0


@dataclass
class _Trigger:
    """events: (flow, the host where it is done), targets: flows; numbers in the order of the file."""

    line: int
    kind: str
    count: int
    events: list[tuple[int, int]] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)


def read_htsim(source: Source) -> Schedule:
    """Raises TrafficError naming the line."""
    heads, flows, triggers = _parsed(source)
    _join(source, flows, triggers)
    waits = _waits(source, flows, triggers)
    builder = MessageBuilder(source.name, heads["Nodes"])
    numbers: dict[int, int] = {}
    channels: Counter[tuple[int, int]] = Counter()
    for i in _ordered(source, flows, waits):
        flow = flows[i]
        after = [numbers[other] for other in waits[i]]
        if flow.start_ps:
            after = [builder.calc(flow.src, round(flow.start_ps / 1000), after=after)]
        pair = flow.src, flow.dst
        numbers[i] = builder.send(*pair, flow.size, after=after, channel=channels[pair])
        channels[pair] += 1
    return builder.build()


# -- reading ----------------------------------------------------------------------------------------------------------


def _parsed(source: Source) -> tuple[dict[str, int], list[_Flow], dict[int, _Trigger]]:
    heads: dict[str, int] = {}
    flows: list[_Flow] = []
    triggers: dict[int, _Trigger] = {}
    for line, text in source.lines("#"):
        first, *words = text.split()
        if first in _HEADS and not flows and not triggers:
            least = 2 if first == "Nodes" else 0
            heads[first] = source.whole(line, first, " ".join(words), least, _HEADS[first])
        elif "Nodes" not in heads:
            raise source.refusal(line, f"{shown(text)} stands before the number of hosts: the first line is Nodes N")
        elif "->" in first:
            flows.append(_flow(source, line, first, words, heads["Nodes"]))
        elif first == "trigger":
            _add_trigger(source, line, words, triggers)
        elif first == "failure":
            raise source.refusal(line, "failures are not part of the traffic here: take the line out")
        else:
            raise source.refusal(line, f"{shown(first)} is not read: write SRC->DST ... or trigger ...")
    if not flows:
        raise TrafficError(f"{source.name}: nothing is sent: write SRC->DST id I start PS size B")
    for name, n in (("Connections", len(flows)), ("Triggers", len(triggers))):
        if heads.get(name, n) != n:
            raise TrafficError(f"{source.name}: {name} is {heads[name]}, and there are {n}: the file is not whole")
    return heads, flows, triggers


def _pairs(source: Source, line: int, words: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name, value in zip(words[::2], [*words[1::2], ""], strict=False):
        if name not in known:
            raise source.refusal(line, f"{shown(name)} is not read: use {', '.join(known)}")
        yield name, value


def _flow(source: Source, line: int, ends: str, words: Sequence[str], n_hosts: int) -> _Flow:
    src, _, dst = ends.partition("->")
    flow = _Flow(line, *(source.whole(line, "host", end, 0, n_hosts - 1) for end in (src, dst)))
    if flow.src == flow.dst:
        raise source.refusal(line, f"host {flow.src} sends to itself: flows go to others")
    given = set()
    known = ("id", "start", "size", "trigger", "send_done_trigger", "recv_done_trigger", "prio")
    for name, value in _pairs(source, line, words, known):
        given.add(name)
        if name == "start":
            flow.start_ps = source.whole(line, name, value.partition(".")[0], 0, 1000 * MAX_CALC_NS)
        elif name == "size":
            flow.size = source.whole(line, name, value, 1, MAX_MESSAGE_BYTES)
        elif name == "prio":
            raise source.refusal(line, f"prio {shown(value)}: hosts know no priorities here: take it out")
        else:
            field_ = name.removesuffix("_trigger") if name.endswith("done_trigger") else name
            setattr(flow, field_, source.whole(line, name, value, 1, _MAX_ID))
    if "size" not in given or ("start" in given) == ("trigger" in given):
        raise source.refusal(line, "a flow has a size, and either a start or a trigger")
    return flow


def _add_trigger(source: Source, line: int, words: Sequence[str], triggers: dict[int, _Trigger]) -> None:
    kinds = [word for word in words if word in _KINDS]
    id_, count = 0, 0
    for name, value in _pairs(source, line, [word for word in words if word not in _KINDS], ("id", "count")):
        number = source.whole(line, name, value, 1, _MAX_ID)
        id_, count = (number, count) if name == "id" else (id_, number)
    if not id_ or len(kinds) != 1 or (kinds == ["barrier"]) != bool(count):
        raise source.refusal(line, f"a trigger has an id and is one of {', '.join(_KINDS)}; a barrier has a count")
    if id_ in triggers:
        raise source.refusal(line, f"trigger {id_} is there twice")
    triggers[id_] = _Trigger(line, kinds[0], count)


# -- what starts what -------------------------------------------------------------------------------------------------


def _join(source: Source, flows: Sequence[_Flow], triggers: Mapping[int, _Trigger]) -> None:
    for i, flow in enumerate(flows):
        for name in ("trigger", "send_done", "recv_done"):
            id_ = getattr(flow, name)
            if id_ and id_ not in triggers:
                raise source.refusal(flow.line, f"there is no trigger {id_}")
            if id_ and name == "trigger":
                triggers[id_].targets.append(i)
            elif id_:
                triggers[id_].events.append((i, flow.src if name == "send_done" else flow.dst))


def _waits(source: Source, flows: Sequence[_Flow], triggers: Mapping[int, _Trigger]) -> list[list[int]]:
    """By flow, the flows that must be done before."""
    waits: list[list[int]] = [[] for _ in flows]
    for id_, trigger in triggers.items():
        for target, events in _starts(source, id_, trigger):
            flow = flows[target]
            for event, host in events:
                if host != flow.src:
                    raise source.refusal(
                        flow.line,
                        f"host {flow.src} would start when line {flows[event].line} is done at host {host}, of which nothing "
                        f"tells it: let trigger {id_} start flows of host {host}",
                    )
                waits[target].append(event)
    return waits


def _starts(source: Source, id_: int, trigger: _Trigger) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Flows that a trigger starts, and the events after which."""
    events, targets = trigger.events, trigger.targets
    needed = {"oneshot": 1, "multishot": len(targets), "barrier": trigger.count}[trigger.kind]
    if targets and len(events) != needed and not (trigger.kind == "multishot" and len(events) > needed):
        raise source.refusal(
            trigger.line,
            f"trigger {id_} is a {trigger.kind} that needs {needed} flows to set it off, and has {len(events)}",
        )
    if trigger.kind != "multishot":
        yield from ((target, events) for target in targets)
        return
    # Which event comes first is known only if each is that of the flow that the one before started.
    order = dict(zip((event for event, _ in events[1:]), targets, strict=False))
    if any(event != target for event, target in order.items()):
        raise source.refusal(
            trigger.line,
            f"trigger {id_} starts its flows in the order in which others end, which is not known beforehand: "
            "use a oneshot for each",
        )
    yield from ((target, [event]) for target, event in zip(targets, events, strict=False))


def _ordered(source: Source, flows: Sequence[_Flow], waits: Sequence[Sequence[int]]) -> list[int]:
    """Each after those that it waits for, else as they stand."""
    followers = defaultdict(list)
    for i, others in enumerate(waits):
        for other in others:
            followers[other].append(i)
    left = [len(others) for others in waits]
    in_order = [i for i, n in enumerate(left) if n == 0]
    # Grows as it is read.
    for i in in_order:
        for follower in followers[i]:
            left[follower] -= 1
            if left[follower] == 0:
                in_order.append(follower)
    if len(in_order) < len(flows):
        stuck = flows[next(i for i, n in enumerate(left) if n)]
        raise source.refusal(stuck.line, "this flow never starts: what sets it off waits for it")
    return in_order
