"""Load of every link over time, from cumulative counters. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.rows import IterationRecord, LinkSamples

Floats = NDArray[np.float64]
# Intervals over a row.
_LEAST, _MOST = 60, 240


@dataclass(frozen=True)
class LinkSeries:
    """Of one row. edge_s: (intervals + 1,) hardware seconds since its first iteration began; links: (links,) their
    directions; load: (links, intervals), shares of the links' rates; iterations: (begin, end) of each, on edge_s's clock."""

    edge_s: Floats
    links: tuple[str, ...]
    kinds: tuple[str, ...]
    load: Floats
    iterations: tuple[tuple[float, float], ...]

    @property
    def mean(self) -> Floats:
        """(links,) over the time of the iterations; between them nothing is sent."""
        middle, width = (self.edge_s[1:] + self.edge_s[:-1]) / 2, np.diff(self.edge_s)
        inside = np.any([(middle >= a) & (middle <= b) for a, b in self.iterations], axis=0)
        within = width * inside
        found: Floats = self.load @ within / within.sum() if within.any() else self.load.mean(axis=1)
        return found

    def hottest(self, most: int) -> list[int]:
        """Places of the links with the highest mean, the highest first."""
        return [int(i) for i in np.argsort(-self.mean, kind="stable")[:most]]


def link_series(
    seen: LinkSamples,
    iterations: Sequence[IterationRecord],
    rate_mbps: Mapping[str, float],
    *,
    size_bytes: int,
    time_dilation: float,
) -> LinkSeries | None:
    """rate_mbps: egress interface -> emulated rate; interfaces without one, such as an optical switch's, are left out.
    None where there are too few samples."""
    own = [i for i in iterations if i.size_bytes == size_bytes]
    if not own or not len(seen.at_s):
        return None
    origin_s = own[0].started_s
    end_s = max(i.started_s + i.emulated_s for i in own)
    first = max(int(np.searchsorted(seen.at_s, origin_s, side="right")) - 1, 0)
    last = min(int(np.searchsorted(seen.at_s, end_s)), len(seen.at_s) - 1)
    chosen = [i for i, intf in enumerate(seen.intfs) if rate_mbps.get(intf, 0) > 0]
    at_s, sent = seen.at_s[first : last + 1], seen.bytes_sent[first : last + 1]
    # Two counters read at one moment, at a window's edge, would divide by nothing.
    kept = np.flatnonzero(np.append(True, np.diff(at_s) > 1e-3))
    at_s, sent = at_s[kept], sent[kept][:, chosen]
    if len(at_s) < 3 or not chosen:
        return None
    edges_s = _edges(at_s)
    # Linear between samples: what a late reading missed does not stand out as a burst in the next one.
    resampled = np.stack([np.interp(edges_s, at_s, sent[:, i]) for i in range(len(chosen))])
    rate_bytes_s = np.array([rate_mbps[seen.intfs[i]] for i in chosen]) * 1e6 / 8
    return LinkSeries(
        edge_s=(edges_s - origin_s) / time_dilation,
        links=tuple(seen.links[i] for i in chosen),
        kinds=tuple(seen.kinds[i] for i in chosen),
        load=np.diff(resampled, axis=1) / np.diff(edges_s) / rate_bytes_s[:, None],
        iterations=tuple(
            ((i.started_s - origin_s) / time_dilation, (i.started_s + i.emulated_s - origin_s) / time_dilation)
            for i in own
        ),
    )


def _edges(at_s: Floats) -> Floats:
    """Of equal intervals: as many as samples where these are few, else one for every few samples."""
    n = len(at_s) - 1
    intervals = n if n <= _LEAST else min(max(n // 4, _LEAST), _MOST)
    return np.linspace(at_s[0], at_s[-1], intervals + 1)
