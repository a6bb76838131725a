"""Chakra execution traces, one file a rank, as one schedule: computing, messages, and collectives by our default algorithms.

What real traces do, and what is made of it. A collective stands there several times, as what the CPU launched and as what the
accelerator ran: only nodes with is_cpu_op false send, others say what comes before what and take no time. Nodes may precede
those that they wait for. Where pg_name is missing the group is all ranks, else the ranks in whose traces it is found. A
group's k-th collective, and the k-th message of a pair of ranks with a tag, are the k-th by id in each trace.

comm_size is bytes as ASTRA-sim takes them: each rank's own part of an all-gather, else the whole buffer. A barrier is an
all-reduce of one element, as PyTorch does it over NCCL.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import traffic
from traffic.compose import Composer
from traffic.contracts import buffer_ratio
from traffic.conventions import ELEMENT_BYTES, buffer_elements
from traffic.errors import TrafficError
from traffic.formats.chakra_file import COLLECTIVE, COMP, MEM_LOAD, MEM_STORE, RECV, SEND, Node, read_nodes
from traffic.formats.simai import TRACE
from traffic.formats.source import MAX_CALC_NS, MAX_CHUNKS, MAX_MESSAGE_BYTES, MAX_OPERATIONS, MAX_RANKS, Source
from traffic.schedule import Schedule, ScheduleBuilder

_BARRIER = 9
# CollectiveCommType; those that are missing have a root or parts of which a trace says nothing.
_COLLECTIVES = {
    0: "all_reduce", 2: "all_gather", 5: "broadcast", 6: "all_to_all", 7: "reduce_scatter", _BARRIER: "all_reduce",
}  # fmt: skip

# Rank and node.
_Key = tuple[int, int]


@dataclass(frozen=True)
class _Event:
    """Nodes that happen as one: a collective's at all its ranks, else a single one; by rank. after: besides their own deps."""

    nodes: Mapping[int, Node]
    after: tuple[_Key, ...] = ()


def read_chakra(sources: Sequence[Source]) -> Schedule:
    """sources: rank by rank. Raises TrafficError naming the file, and the node where there is one."""
    if not 2 <= len(sources) <= MAX_RANKS:
        raise TrafficError(
            f"{sources[0].name}: traces of {len(sources)} ranks: use 2 to {MAX_RANKS}, NAME.0.et, NAME.1.et, ..."
        )
    return _Trace(sources).schedule()


class _Trace:
    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._nodes = [read_nodes(source) for source in sources]
        self._composer = Composer(TRACE, _name(sources), len(sources))
        # The operation after which a node is over at its rank, None if nothing is before; of sends, what arrives.
        self._over: dict[_Key, int | None] = {}
        self._arrives: dict[_Key, int] = {}
        self._n_chunks = 0
        self._made: dict[tuple[str, int], Schedule] = {}
        self._channels: dict[str, int] = {}

    def schedule(self) -> Schedule:
        events = [*self._collectives(), *self._messages_and_others()]
        for event in self._ordered(events):
            (rank, node), *others = event.nodes.items()
            if others:
                self._collective(event.nodes)
                continue
            after = self._before(rank, node)
            if node.type == SEND and not node.is_cpu:
                self._send(rank, node, after)
            elif event.after:
                self._over[rank, node.id] = self._composer.join(rank, [*after, self._arrives[event.after[0]]])
            else:
                self._over[rank, node.id] = self._alone(rank, node, after)
            if len(self._composer) > MAX_OPERATIONS or self._n_chunks * len(self._nodes) > MAX_CHUNKS:
                raise TrafficError(
                    f"{self._sources[0].name}: more operations than there is room for: use a shorter trace"
                )
        made = self._composer.build()
        if made.is_local.all():
            raise TrafficError(f"{self._sources[0].name}: nothing is sent: no node with is_cpu_op false does")
        return made

    def refusal(self, rank: int, node: Node, what: str) -> TrafficError:
        return TrafficError(f"{self._sources[rank].name}: node {node.id} {what}")

    # -- which nodes belong together ----------------------------------------------------------------------------------

    def _collectives(self) -> Iterator[_Event]:
        groups: dict[str, dict[int, list[Node]]] = defaultdict(dict)
        for rank, nodes in enumerate(self._nodes):
            for node in nodes:
                if node.type == COLLECTIVE and not node.is_cpu:
                    self._require_known(rank, node)
                    groups[_group(node)].setdefault(rank, []).append(node)
        if "" in groups:
            groups[""] = {rank: groups[""].get(rank, []) for rank in range(len(self._nodes))}
        for name, by_rank in groups.items():
            n = max(map(len, by_rank.values()))
            for rank, nodes in by_rank.items():
                if len(nodes) < n:
                    raise TrafficError(
                        f"{self._sources[rank].name}: has {len(nodes)} collectives of {_group_name(name)}, and others have {n}: "
                        "each rank takes part in all"
                    )
            for k in range(n):
                together = {rank: of_rank[k] for rank, of_rank in by_rank.items()}
                (first_rank, first), *others = together.items()
                for rank, node in others:
                    if _kind(node) != _kind(first):
                        raise self.refusal(
                            rank,
                            node,
                            f"is another collective than node {first.id} of rank {first_rank}: both are number {k} of "
                            f"{_group_name(name)}",
                        )
                yield _Event(together)

    def _require_known(self, rank: int, node: Node) -> None:
        kind, size = node.whole("comm_type"), node.whole("comm_size")
        if kind not in _COLLECTIVES:
            raise self.refusal(rank, node, f"has comm_type {kind}: {', '.join(map(str, _COLLECTIVES))} are read")
        if kind != _BARRIER and (size is None or not 0 <= size <= MAX_MESSAGE_BYTES):
            raise self.refusal(rank, node, f"has comm_size {size}: a collective has 0 to {MAX_MESSAGE_BYTES} bytes")

    def _messages_and_others(self) -> Iterator[_Event]:
        sends, receives = (self._by_flow(kind) for kind in (SEND, RECV))
        for flow in sends | receives:
            if len(sends.get(flow, [])) != len(receives.get(flow, [])):
                src, dst, tag = flow
                raise TrafficError(
                    f"{self._sources[src].name}: sends {len(sends.get(flow, []))} times to rank {dst} with tag {tag}, and "
                    f"{self._sources[dst].name} receives {len(receives.get(flow, []))} times"
                )
        for flow, nodes in receives.items():
            src, dst, _ = flow
            for sent, node in zip(sends[flow], nodes, strict=True):
                if sent.whole("comm_size") != node.whole("comm_size"):
                    raise self.refusal(dst, node, f"receives another size than node {sent.id} of rank {src} sends")
                yield _Event({dst: node}, after=((src, sent.id),))
        for rank, nodes in enumerate(self._nodes):
            for node in nodes:
                if node.is_cpu or node.type not in (RECV, COLLECTIVE):
                    yield _Event({rank: node})

    def _by_flow(self, kind: int) -> dict[tuple[int, int, int], list[Node]]:
        """(source, destination, tag) -> nodes."""
        found: dict[tuple[int, int, int], list[Node]] = defaultdict(list)
        for rank, nodes in enumerate(self._nodes):
            for node in nodes:
                if node.type != kind or node.is_cpu:
                    continue
                size, peer = node.whole("comm_size"), node.whole("comm_dst" if kind == SEND else "comm_src")
                if size is None or not 0 <= size <= MAX_MESSAGE_BYTES:
                    raise self.refusal(
                        rank, node, f"has comm_size {size}: a message has 0 to {MAX_MESSAGE_BYTES} bytes"
                    )
                if peer is None or not 0 <= peer < len(self._nodes) or peer == rank:
                    raise self.refusal(
                        rank, node, f"is joined to rank {peer}: the others are among 0 to {len(self._nodes) - 1}"
                    )
                ends = (rank, peer) if kind == SEND else (peer, rank)
                flow = (*ends, node.whole("comm_tag") or 0)
                found[flow].append(node)
        return found

    # -- order --------------------------------------------------------------------------------------------------------

    def _ordered(self, events: Sequence[_Event]) -> Iterator[_Event]:
        """Each after what its nodes wait for, else by id. Refuses a cycle."""
        event_of = {(rank, node.id): i for i, event in enumerate(events) for rank, node in event.nodes.items()}
        waits = [
            {
                event_of[key]
                for key in (*event.after, *((r, d) for r, node in event.nodes.items() for d in node.deps))
                if key in event_of
            }
            for event in events
        ]
        followers = defaultdict(list)
        for i, others in enumerate(waits):
            for other in others:
                followers[other].append(i)
        left = [len(others) for others in waits]
        turn = [(min(node.id for node in event.nodes.values()), i) for i, event in enumerate(events)]
        ready = [turn[i] for i, n in enumerate(left) if n == 0]
        heapq.heapify(ready)
        n_done = 0
        while ready:
            _, i = heapq.heappop(ready)
            n_done += 1
            yield events[i]
            for follower in followers[i]:
                left[follower] -= 1
                if left[follower] == 0:
                    heapq.heappush(ready, turn[follower])
        if n_done < len(events):
            rank, node = next(iter(events[next(i for i, n in enumerate(left) if n)].nodes.items()))
            raise self.refusal(rank, node, "never begins: what it waits for waits for it")

    # -- operations ---------------------------------------------------------------------------------------------------

    def _before(self, rank: int, node: Node) -> list[int]:
        over = (self._over[rank, dep] for dep in node.deps)
        return list(dict.fromkeys(number for number in over if number is not None))

    def _alone(self, rank: int, node: Node, after: list[int]) -> int | None:
        """Computing takes time at the accelerator; what a CPU does only keeps an order."""
        computes = node.type in (COMP, MEM_LOAD, MEM_STORE) and not node.is_cpu
        calc_ns = node.duration_us * 1000 if computes else 0
        if calc_ns > MAX_CALC_NS:
            raise self.refusal(rank, node, f"takes {node.duration_us} us: use a day at most")
        if computes and not calc_ns and node.whole("num_ops" if node.type == COMP else "tensor_size"):
            raise self.refusal(
                rank, node, "has no duration_micros: how long operations and bytes take is not computed here"
            )
        if calc_ns:
            return self._composer.calc(rank, calc_ns, after)
        return self._composer.join(rank, after) if after else None

    def _send(self, src: int, node: Node, after: list[int]) -> None:
        dst, size = node.whole("comm_dst"), node.whole("comm_size")
        assert dst is not None and size is not None
        self._n_chunks += 1
        begins = {src: self._composer.join(src, after)} if after else {}
        ended = self._composer.place(
            _one_way(), -(-size // ELEMENT_BYTES), (src, dst), begins, self._channel_of("messages")
        )
        self._over[src, node.id] = ended[src]
        self._arrives[src, node.id] = ended[dst]

    def _collective(self, nodes: Mapping[int, Node]) -> None:
        ranks = tuple(nodes)
        begins = {}
        for rank, node in nodes.items():
            if after := self._before(rank, node):
                begins[rank] = self._composer.join(rank, after)
        first = nodes[ranks[0]]
        kind, size = _kind(first)
        collective = _COLLECTIVES[kind]
        made = self._schedule_of(collective, len(ranks))
        self._n_chunks += made.n_chunks
        whole = ELEMENT_BYTES if kind == _BARRIER else size * (len(ranks) if collective == "all_gather" else 1)
        count = ceil(buffer_elements(collective, whole, len(ranks)) * buffer_ratio(made))
        channel = self._channel_of(f"group {_group(first)}")
        for rank, number in self._composer.place(made, count, ranks, begins, channel).items():
            self._over[rank, nodes[rank].id] = number

    def _schedule_of(self, collective: str, n_ranks: int) -> Schedule:
        key = collective, n_ranks
        if key not in self._made:
            self._made[key] = traffic.schedule(collective, None, n_ranks)
        return self._made[key]

    def _channel_of(self, what: str) -> int:
        """Its own: what one group does holds up no other."""
        return self._channels.setdefault(what, len(self._channels))


def _name(sources: Sequence[Source]) -> str:
    """'NAME.et' of NAME.0.et, NAME.1.et, ..."""
    return sources[0].name.removesuffix(".et").removesuffix(".0") + ".et"


def _group(node: Node) -> str:
    return str(node.attributes.get("pg_name", ""))


def _group_name(name: str) -> str:
    return f"group {name!r}" if name else "all ranks"


def _kind(node: Node) -> tuple[int, int]:
    """What must be the same at all ranks: type and bytes."""
    return node.whole("comm_type") or 0, node.whole("comm_size") or 0


def _one_way() -> Schedule:
    """From the first of two ranks to the second."""
    builder = ScheduleBuilder("broadcast", "direct", 2, 1)
    builder.send(0, 1, 0, reduce=False)
    return builder.build()
