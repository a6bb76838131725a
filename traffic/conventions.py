"""Sizes and bandwidths as nccl-tests counts them (its src/*.cu: GetCollByteCount and GetBw). GB = 1e9.

`size` is what the table prints; bus bandwidth corrects algorithm bandwidth by a factor that belongs to the collective,
never to the algorithm, so that it can be compared with the link rate.
"""

from collections.abc import Iterator

from topologies import unknown
from traffic.errors import TrafficError

ELEMENT_BYTES = 4
# Collectives whose buffer is n equal parts, each a multiple of 16 bytes.
_DIVIDED = ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")
# Whose parts have sizes of their own.
_UNEQUAL = ("all_to_all_v",)
_TWICE = ("all_reduce",)
# No collectives: `size` is the most that a rank sends or receives, so that busbw is what the busiest one moves.
BY_TRAFFIC = ("messages", "trace")
_ONCE = ("broadcast", "reduce", "sendrecv")


def bus_factor(collective: str, n_ranks: int) -> float:
    """busbw / algbw. n_ranks: the collective's members; what helps them does not count."""
    if collective in _TWICE:
        return 2 * (n_ranks - 1) / n_ranks
    if collective in (*_DIVIDED, *_UNEQUAL):
        return (n_ranks - 1) / n_ranks
    if collective in (*_ONCE, *BY_TRAFFIC):
        return 1.0
    raise TrafficError(unknown("collective", collective, (*_TWICE, *_DIVIDED, *_UNEQUAL, *_ONCE)))


def buffer_elements(collective: str, size_bytes: int, n_ranks: int) -> int:
    """float32 elements of the whole buffer for a requested size: rounded down to whole elements, and for the divided
    collectives to n parts of a multiple of 16 bytes."""
    count = size_bytes // ELEMENT_BYTES
    if collective in _DIVIDED:
        return count // n_ranks // 4 * 4 * n_ranks
    return count


def sizes(min_bytes: int, max_bytes: int, factor: int) -> Iterator[int]:
    """The sweep of -b, -e and -f: min, min x factor, ... up to max. Raises TrafficError for a sweep without an end."""
    if min_bytes < 1 or factor < 2:
        raise TrafficError(
            f"a sweep from {min_bytes} bytes by factor {factor} has no end: use 1 or more, and 2 or more"
        )
    size = min_bytes
    while size <= max_bytes:
        yield size
        size *= factor
