"""A matrix of bytes as text, as nccl-tests' alltoallv takes it: row r, column d is what rank r sends to rank d.

Numbers are separated by spaces or commas, a row stands on a line; # begins a comment. All sends start at once, as NCCL's do. What
a rank has for itself is copied and not sent. Bytes are rounded up to whole elements.
"""

from dataclasses import replace

from traffic.collectives.all_to_all import direct_all_to_all_v
from traffic.errors import TrafficError
from traffic.formats.source import MAX_MESSAGE_BYTES, MAX_RANKS, Source
from traffic.layout import Layout
from traffic.schedule import Schedule


def read_matrix(source: Source) -> Schedule:
    """Raises TrafficError naming the line."""
    rows: list[tuple[int, ...]] = []
    n_ranks = 0
    for line, text in source.lines("#"):
        numbers = text.split("#")[0].replace(",", " ").split()
        n_ranks = n_ranks or len(numbers)
        if n_ranks > MAX_RANKS:
            raise source.refusal(line, f"{n_ranks} columns are too many: use {MAX_RANKS} ranks or fewer")
        if len(numbers) != n_ranks or len(rows) == n_ranks:
            raise source.refusal(
                line, f"row {len(rows)} has {len(numbers)} numbers: {n_ranks} ranks need {n_ranks} rows of {n_ranks}"
            )
        to = enumerate(numbers)
        rows.append(tuple(source.whole(line, f"bytes from {len(rows)} to {d}", n, 0, MAX_MESSAGE_BYTES) for d, n in to))
    if len(rows) != n_ranks or n_ranks < 2:
        raise TrafficError(
            f"{source.name}: {len(rows)} rows of {n_ranks} numbers: a matrix of n ranks, two or more, has n of n"
        )
    if not any(n for r, row in enumerate(rows) for d, n in enumerate(row) if d != r):
        raise TrafficError(f"{source.name}: nobody sends anything to others: write a number above 0 off the diagonal")
    made = direct_all_to_all_v(Layout(n_ranks, matrix=tuple(rows)))
    return replace(made, algorithm=source.name)
