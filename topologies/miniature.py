"""The smaller sibling of a fabric that a machine can emulate: same oversubscription first, then the same shape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose, log

from topologies import topology
from topologies.errors import TopologyError
from topologies.sizing import Size, Unreachable, Want, sized

# Two of everything, and what a small machine can run.
LEAST_MINIATURE, MOST_MINIATURE = 8, 128
_MOST_PORTS = 16
_HB_DOMAINS = (2, 4, 8)


@dataclass(frozen=True)
class Miniature:
    """not_kept: ratio -> (the large one's, the small one's); None: the small one has none, or no formula for it."""

    size: Size
    not_kept: Mapping[str, tuple[float, float | None]]


def miniature(large: Size, accelerators: int) -> Miniature | None:
    """The sibling of about so many accelerators (half to one and a half times) that a topology can build.

    The smallest instances at every small radix are tried. The best keeps the oversubscription, then loses the fewest
    ratios, then is nearest to the size asked for, then has the most switches, to show the structure. None where none has
    about that size.
    """
    found = (Miniature(size, _not_kept(large, size)) for size in _candidates(large, accelerators))
    return min(found, key=lambda m: _loss(m, accelerators), default=None)


def _loss(small: Miniature, accelerators: int) -> tuple[bool, int, float, int]:
    distance = abs(log(small.size.hosts / accelerators))
    return "oversubscription" in small.not_kept, len(small.not_kept), distance, -small.size.switches


def _candidates(large: Size, accelerators: int) -> Iterator[Size]:
    low, high = -(-accelerators // 2), accelerators * 3 // 2
    domains = _HB_DOMAINS if "gpus_per_server" in large.parameters else _HB_DOMAINS[:1]
    for hb_domain in domains:
        for radix in range(2, _MOST_PORTS + 1):
            for hosts in range(max(2, low), high + 1):
                try:
                    size = sized(large.fabric, Want(hosts, radix, hb_domain))
                    if size.buildable and size.hosts <= high and topology(size.text):
                        yield size
                except Unreachable:
                    break
                except TopologyError:
                    continue  # counts that the topology itself refuses


def _not_kept(large: Size, small: Size) -> dict[str, tuple[float, float | None]]:
    little = _ratios(small)
    pairs = {name: (value, little.get(name)) for name, value in _ratios(large).items()}
    return {name: (a, b) for name, (a, b) in pairs.items() if b is None or not isclose(a, b, rel_tol=0.01)}


def _ratios(size: Size) -> dict[str, float]:
    share = size.bisection_share
    ratios = {
        "oversubscription": 1 / share if share else None,
        "diameter": size.diameter,
        "path diversity": size.path_diversity,
        "radix": size.radix,
    }
    return {name: value for name, value in ratios.items() if value is not None} | dict(size.shape)
