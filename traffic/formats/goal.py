"""GOAL as text, the schedules of LogGOPSim and ATLAHS (Hoefler et al., "Group Operation Assembly Language", ICPP 2009).

    num_ranks 2
    rank 0 {
    l1: calc 100 cpu 0
    l2: send 8b to 1 tag 0
    l2 requires l1
    }
    rank 1 {
    l1: recv 8b from 0 tag 0
    }

The k-th send of a pair of ranks with a tag is received by the k-th receive there. `a requires b`: a begins when b is over;
`a irequires b`: when b begins. A send is over when it has left. Time is in ns. Calculations of one cpu, and messages of one
pair of ranks, take turns: in an order that fits what they wait for, and as they stand in the file where that leaves a choice.
Messages and calculations do not keep each other waiting.
"""

import heapq
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from traffic.errors import TrafficError
from traffic.formats.progress import Progress, arrived, both, done, left, numbers
from traffic.formats.source import MAX_CALC_NS, MAX_MESSAGE_BYTES, MAX_OPERATIONS, MAX_RANKS, Source, shown
from traffic.messages import MessageBuilder
from traffic.schedule import Schedule

_LABEL = r"[A-Za-z_][\w.]*"
_OPERATION = re.compile(
    rf"(?:({_LABEL})\s*:\s*)?(send|recv|calc)\s+(\d+)b?(?:\s+(?:to|from)\s+(\S+))?((?:\s+\w+\s+\S+)*)"
)
_REQUIRES = re.compile(rf"({_LABEL})\s+(i?requires)\s+({_LABEL})")
# What may be waited for at once before it is written as one operation.
_MOST_WAITS = 16


@dataclass
class _Operation:
    """peer and tag: of messages; cpu: of calculations; requires, begins_after: places of others among all."""

    line: int
    rank: int
    kind: str
    amount: int
    peer: int = -1
    tag: int = 0
    cpu: int = 0
    requires: list[int] = field(default_factory=list)
    begins_after: list[int] = field(default_factory=list)

    @property
    def flow(self) -> tuple[int, int, int]:
        ends = (self.rank, self.peer) if self.kind == "send" else (self.peer, self.rank)
        return *ends, self.tag


def read_goal(source: Source) -> Schedule:
    """Raises TrafficError naming the line."""
    n_ranks, operations = _parsed(source)
    send_of = _matched(source, operations)
    in_order = _ordered(source, operations, send_of)
    if not send_of:
        raise TrafficError(f"{source.name}: nothing is sent: write a send and its recv")
    builder = MessageBuilder(source.name, n_ranks)
    # By operation: what must be over for it to begin, and once it is over.
    begun: dict[int, Progress] = {}
    over: dict[int, Progress] = {}
    numbered: dict[int, int] = {}
    last_of_cpu: dict[tuple[int, int], int] = {}
    for at, begins in in_order:
        o = operations[at]
        if not begins:
            if o.kind == "recv":
                over[at] = both(begun[at], arrived((o.peer, o.rank, 0), numbered[send_of[at]]))
            continue
        waits = both(*(over[r] for r in o.requires), *(begun[b] for b in o.begins_after))
        if o.kind == "calc":
            before = last_of_cpu.get((o.rank, o.cpu))
            waits = both(waits, over[before] if before is not None else {})
            last_of_cpu[o.rank, o.cpu] = at
        if len(waits) > _MOST_WAITS:
            waits = done(builder.calc(o.rank, 0, after=numbers(waits)))
        begun[at] = waits
        if o.kind == "calc":
            over[at] = done(builder.calc(o.rank, o.amount, after=numbers(waits)))
        elif o.kind == "send":
            connection = (o.rank, o.peer, 0)
            numbered[at] = builder.send(o.rank, o.peer, o.amount, after=numbers(waits, connection))
            over[at] = left(connection, numbered[at])
    return builder.build()


# -- reading ----------------------------------------------------------------------------------------------------------


def _statements(source: Source) -> Iterator[tuple[int, str]]:
    """Line and text, one for each statement or brace."""
    for line, text in source.lines("//"):
        plain = text.split("//")[0].split("#")[0]
        for statement in plain.replace("{", "{;").replace("}", ";};").split(";"):
            if statement.strip():
                yield line, " ".join(statement.split())


def _parsed(source: Source) -> tuple[int, list[_Operation]]:
    statements = _statements(source)
    line, head = next(statements, (1, ""))
    if not head.startswith("num_ranks "):
        raise source.refusal(line, f"{shown(head)} is no beginning of a GOAL file: the first line is num_ranks N")
    n_ranks = source.whole(line, "num_ranks", head.removeprefix("num_ranks "), 1, MAX_RANKS)
    operations: list[_Operation] = []
    seen: set[int] = set()
    rank, labels = -1, dict[str, int]()
    for line, text in statements:
        if rank < 0:
            opened = re.fullmatch(r"rank (\S+) \{", text)
            if not opened:
                raise source.refusal(line, f"{shown(text)} stands outside of a rank: write rank R {{ ... }}")
            rank, labels = source.whole(line, "rank", opened[1], 0, n_ranks - 1), {}
            if rank in seen:
                raise source.refusal(line, f"rank {rank} is there twice")
            seen.add(rank)
        elif text == "}":
            rank = -1
        elif wait := _REQUIRES.fullmatch(text):
            _wait(source, line, wait.groups(), labels, operations)
        else:
            _add_operation(source, line, text, (rank, n_ranks), labels, operations)
    if rank >= 0:
        raise source.refusal(line, f"rank {rank} is not closed: the file ends without its }}")
    return n_ranks, operations


def _add_operation(
    source: Source, line: int, text: str, where: tuple[int, int], labels: dict[str, int], operations: list[_Operation]
) -> None:
    """where: the rank, and how many there are."""
    found = _OPERATION.fullmatch(text)
    if not found or (found[2] == "calc") == bool(found[4]):
        raise source.refusal(
            line,
            f"{shown(text)} is not read: write send Nb to R, recv Nb from R, calc N, a requires b or a irequires b",
        )
    rank, n_ranks = where
    label, kind, amount, peer, options = found.groups()
    if len(operations) == MAX_OPERATIONS:
        raise source.refusal(line, f"there are more than {MAX_OPERATIONS} operations: use a smaller file")
    most = MAX_CALC_NS if kind == "calc" else MAX_MESSAGE_BYTES
    made = _Operation(line, rank, kind, source.whole(line, kind, amount, 0, most))
    if peer is not None:
        made.peer = source.whole(line, f"the other rank of {kind}", peer, 0, n_ranks - 1)
        if made.peer == rank:
            raise source.refusal(line, f"{kind} from rank {rank} to itself: messages go to others")
    words = options.split()
    for name, value in zip(words[::2], words[1::2], strict=True):
        if name == "tag" and kind != "calc":
            made.tag = source.whole(line, name, value, 0, 2**31 - 1)
        elif name == "cpu":
            made.cpu = source.whole(line, name, value, 0, 2**31 - 1)
        elif name == "nic" and kind != "calc":
            if source.whole(line, name, value, 0, 2**31 - 1):
                raise source.refusal(line, f"nic {value}: a rank has one NIC here, use nic 0")
        else:
            raise source.refusal(line, f"{name} {value} is not read: {kind} may have tag, cpu and nic, calc cpu alone")
    if label is not None:
        if label in labels:
            raise source.refusal(line, f"label {label} is there twice in rank {rank}")
        labels[label] = len(operations)
    operations.append(made)


def _wait(source: Source, line: int, wait: Sequence[str], labels: dict[str, int], operations: list[_Operation]) -> None:
    waiting, kind, other = wait
    for label in (waiting, other):
        if label not in labels:
            raise source.refusal(line, f"there is no {label} before this line in its rank")
    o = operations[labels[waiting]]
    (o.requires if kind == "requires" else o.begins_after).append(labels[other])


# -- order ------------------------------------------------------------------------------------------------------------


def _matched(source: Source, operations: Sequence[_Operation]) -> dict[int, int]:
    """By receive, its send."""
    sends, receives = (_by_flow(operations, kind) for kind in ("send", "recv"))
    send_of = {}
    for flow in sends | receives:
        there, here = sends.get(flow, []), receives.get(flow, [])
        if len(there) != len(here):
            first = (there if len(there) > len(here) else here)[min(len(there), len(here))]
            src, dst, tag = flow
            raise source.refusal(
                operations[first].line,
                f"rank {src} sends {len(there)} times to rank {dst} with tag {tag}, which receives {len(here)} times",
            )
        for send, receive in zip(there, here, strict=True):
            a, b = operations[send], operations[receive]
            if a.amount != b.amount:
                raise source.refusal(b.line, f"receives {b.amount} bytes, and line {a.line} sends {a.amount}")
            send_of[receive] = send
    return send_of


def _by_flow(operations: Sequence[_Operation], kind: str) -> dict[tuple[int, int, int], list[int]]:
    found = defaultdict(list)
    for at, o in enumerate(operations):
        if o.kind == kind:
            found[o.flow].append(at)
    return dict(found)


def _ordered(source: Source, operations: Sequence[_Operation], send_of: dict[int, int]) -> list[tuple[int, bool]]:
    """Operations, each as it begins (True) and as it ends, after what it waits for, else as they stand. Refuses a cycle."""
    # Events: 2 x operation, and 1 more for its end.
    waits_for: list[set[int]] = []
    for at, o in enumerate(operations):
        waits_for.append({2 * other + 1 for other in o.requires} | {2 * other for other in o.begins_after})
        waits_for.append({2 * at} | ({2 * send_of[at] + 1} if at in send_of else set()))
    followers = defaultdict(list)
    for event, others in enumerate(waits_for):
        for other in others:
            followers[other].append(event)
    left_to_wait = [len(others) for others in waits_for]
    ready = [event for event, n in enumerate(left_to_wait) if n == 0]
    in_order = []
    while ready:
        event = heapq.heappop(ready)
        in_order.append((event // 2, event % 2 == 0))
        for follower in followers[event]:
            left_to_wait[follower] -= 1
            if left_to_wait[follower] == 0:
                heapq.heappush(ready, follower)
    if len(in_order) < len(waits_for):
        stuck = operations[next(event for event, n in enumerate(left_to_wait) if n) // 2]
        raise source.refusal(stuck.line, f"{stuck.kind} can never be over: what it waits for waits for it")
    return in_order
