"""Files as they arrive from careless hands: cut off, or with bytes that do not belong there."""

import random
from collections.abc import Callable

from traffic import TrafficError


def refusals(read: Callable[[bytes], object], good: bytes, n: int = 300, seed: int = 1) -> list[str]:
    """What n broken versions of a good file are refused with; any other exception is the caller's failure."""
    chance = random.Random(seed)
    texts = []
    for _ in range(n):
        bad = bytearray(good[: chance.randrange(len(good))] if chance.random() < 0.3 else good)
        for _ in range(chance.randrange(4)):
            if bad:
                bad[chance.randrange(len(bad))] = chance.choice(b'0123456789<>"/-:{}[] \x00\xff')
        try:
            read(bytes(bad))
        except TrafficError as refusal:
            texts.append(str(refusal))
    return texts
