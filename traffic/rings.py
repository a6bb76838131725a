"""What is done along rings of ranks, in many rings at a time: blocks of chunks go round and grow, or are left behind."""

import numpy as np

from traffic.columns import ColumnBuilder, Numbers


def pass_around(
    columns: ColumnBuilder,
    rings: Numbers,
    *,
    steps: int,
    reducing: int,
    first_block: int = 0,
    block_chunks: int = 1,
    blocks: Numbers | None = None,
    channel: int = 0,
    after: Numbers | None = None,
) -> Numbers | None:
    """In step t the rank at place i of each ring sends block (i + first_block - t) mod n to the next one, n the ring's length;
    the first `reducing` steps reduce. What it sends it received in the step before.

    rings: (rings, n) ranks. Block b of ring k is the block_chunks chunks from blocks[k, b] on, unasked from b block_chunks on.
    after: (rings, n, any) what the first sends wait for. Returns (rings, n, 1) the last sends that each rank receives; without a
    step, `after`.
    """
    place, n = np.arange(rings.shape[1]), rings.shape[1]
    right = np.roll(rings, -1, axis=1)
    starts = place[None] * block_chunks if blocks is None else blocks
    for t in range(steps):
        block = (place + first_block - t) % n
        sent = columns.sends(
            rings,
            right,
            starts[:, block],
            n_chunks=block_chunks,
            reduce=t < reducing,
            after=after,
            channel=channel,
        )
        after = np.roll(sent, 1, axis=1)[..., None]
    return after
