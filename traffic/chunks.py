"""How a buffer is cut into chunks: sizes in elements from the number of elements. Whatever the number, all ends agree."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
# Where size x count could leave 63 bits, Python's own integers multiply.
_SAFE = 2**62


def chunk_bounds(count: int, n_chunks: int) -> Longs:
    """(n_chunks + 1,) element offsets: the first `count mod n_chunks` chunks get one element more."""
    return bounds_of(cut(np.array([count]), n_chunks))


def bounds_of(sizes: Longs) -> Longs:
    """(..., n + 1) offsets of n consecutive sizes."""
    bounds = np.zeros((*sizes.shape[:-1], sizes.shape[-1] + 1), dtype=np.int64)
    np.cumsum(sizes, axis=-1, out=bounds[..., 1:])
    return bounds


def cut(sizes: Longs, n: int) -> Longs:
    """(..., k n): each of the (..., k) sizes in n pieces, the first `size mod n` of which get one element more."""
    if n == 0:
        return np.zeros((*sizes.shape[:-1], 0), dtype=np.int64)
    pieces = sizes[..., None] // n + (np.arange(n) < sizes[..., None] % n)
    return pieces.reshape(*sizes.shape[:-1], -1)


def equal_chunks(count: int, n_blocks: int, cuts: Sequence[int]) -> Longs:
    """(n_blocks x the product of cuts,) sizes: n_blocks equal blocks, what is left of `count` unused; each cut into cuts[0],
    each of these into cuts[1], ..."""
    sizes: Longs = np.full(n_blocks, count // n_blocks)
    for n in cuts:
        sizes = cut(sizes, n)
    return sizes


def scaled(natural: Longs, count: int) -> Longs:
    """`natural` sizes (ranks, chunks) for buffers of `count` elements: the largest rank's fit. Equal sizes stay equal."""
    total = int(natural.sum(axis=-1).max(initial=0))
    if total in (0, count):
        return natural
    whole, rest = divmod(count, total)
    if max(int(natural.max()) * rest, count) < _SAFE:
        return natural * whole + natural * rest // total
    exact: Longs = (natural.astype(object) * count // total).astype(np.int64)
    return exact
