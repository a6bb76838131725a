"""What NCCL_DEBUG=INFO says beside the table: ranks, channels, and which algorithm NCCL took for which size.

    ... NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0
    ... NCCL INFO Channel 00/16 :    0   1   2 ...
    ... NCCL INFO AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 61.5          (of NCCL 2.2x: Algo RING proto SIMPLE ...)
    ... NCCL INFO AllReduce: opCount 0 sendbuff 0x7 recvbuff 0x7 count 262144 datatype 7 op 0 root 0 comm 0x5 [nranks=16]
    ... NCCL INFO NCCL_ALGO set by environment to Ring.

Lines that say nothing of this, or that another process cut, are passed over.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# NCCL's names, and its numbers (NCCL_ALGO_*), of algorithms that we have.
_BY_NUMBER = ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
_OURS = {
    "ring": "ring", "tree": "double-binary-tree", "collnetdirect": "in-network", "collnetchain": "in-network",
    "nvls": "in-network", "nvlstree": "in-network",
}  # fmt: skip
_COLLECTIVES = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter", "Broadcast": "broadcast",
    "Reduce": "reduce", "AllToAll": "all_to_all",
}  # fmt: skip
# Whose `count` is each rank's part of nccl-tests' size.
_DIVIDED = ("AllGather", "ReduceScatter", "AllToAll")
# ncclDataType_t -> bytes.
_DATATYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
_RANKS = re.compile(r"NCCL INFO .*\bcomm 0x[0-9a-f]+ rank \d+ n[rR]anks (\d+)\b")
_CHANNELS = re.compile(r"NCCL INFO Channel \d+/(\d+)\s*:(?:\s+\d+)+\s*$")
_TUNED = re.compile(r"NCCL INFO (\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)")
_CALLED = re.compile(r"NCCL INFO (\w+): opCount [0-9a-f]+ .*\bcount (\d+) datatype (\d+) .*?(?:\[nranks=(\d+)\]|$)")
_FORCED = re.compile(r"NCCL INFO NCCL_ALGO set by environment to (\S+?)\.?\s*$")


@dataclass(frozen=True)
class Log:
    """algorithm_at: size (bytes) -> NCCL's name of what it took; forced: of all sizes, by NCCL_ALGO; sizes: of calls that were
    logged; ranks, channels: None = not said."""

    ranks: int | None = None
    channels: int | None = None
    collective: str | None = None
    forced: str | None = None
    algorithm_at: Mapping[int, str] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()

    def algorithm(self, size_bytes: int) -> str | None:
        """NCCL's name: what it took for the nearest size at which it was seen."""
        if self.algorithm_at:
            return self.algorithm_at[min(self.algorithm_at, key=lambda size: abs(math.log(size / size_bytes)))]
        return self.forced


NO_LOG = Log()


def ours(algorithm: str) -> str | None:
    """Our name of NCCL's algorithm; None where we have no such."""
    return _OURS.get(algorithm.lower())


def read_log(text: str) -> Log:
    """Of several communicators, the largest's ranks. Never fails."""
    ranks, channels, tuned, called = 0, 0, dict[tuple[str, int], str](), dict[str, set[int]]()
    forced: str | None = None
    for line in text.splitlines():
        if "NCCL INFO" not in line:
            continue
        if found := _RANKS.search(line):
            ranks = max(ranks, int(found[1]))
        elif found := _CHANNELS.search(line):
            channels = max(channels, int(found[1]))
        elif found := _TUNED.search(line):
            tuned[found[1], int(found[2])] = _named(found[3])
        elif found := _FORCED.search(line):
            forced = found[1] if found[1].isalnum() else None
        elif (found := _CALLED.search(line)) and int(found[3]) < len(_DATATYPE_BYTES):
            ranks = max(ranks, int(found[4] or 0))
            parts = ranks if found[1] in _DIVIDED else 1
            called.setdefault(found[1], set()).add(int(found[2]) * _DATATYPE_BYTES[int(found[3])] * parts)
    names = [*dict.fromkeys(name for name, _ in tuned), *called]
    # The one that was called at most sizes: a program's barriers are all-reduces, too.
    most = max(names, key=lambda n: len(called.get(n, ())) + sum(name == n for name, _ in tuned), default=None)
    at = {size: algorithm for (name, size), algorithm in tuned.items() if name == most and size}
    sizes = {*at, *(called.get(most, ()) if most else ())}
    known = _COLLECTIVES.get(most) if most else None
    return Log(ranks or None, channels or None, known, forced, at, tuple(sorted(sizes)) if known else ())


def _named(algorithm: str) -> str:
    number = int(algorithm) if algorithm.isdecimal() else -1
    return _BY_NUMBER[number] if 0 <= number < len(_BY_NUMBER) else algorithm.lower()
