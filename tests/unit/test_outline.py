"""Outlines against the schedules that they stand for."""

from collections import defaultdict

import pytest

import traffic
from traffic import Layout, TrafficError
from traffic.contracts import buffer_ratio
from traffic.outline import AllPairs, outline

DOMAINS = Layout(12, tuple(tuple(range(i, i + 3)) for i in range(0, 12, 3)))


@pytest.mark.parametrize(
    ("collective", "algorithm", "layout"),
    [
        ("all_reduce", "ring", Layout(12)),
        ("all_reduce", "hierarchical", DOMAINS),
        ("all_reduce", "halving-doubling", Layout(16)),
        ("reduce_scatter", "ring", Layout(5)),
        ("all_gather", "ring", Layout(5)),
    ],
)
def test_pairs_and_their_bytes_are_the_schedules(collective: str, algorithm: str, layout: Layout) -> None:
    s = traffic.schedule(collective, algorithm, layout)
    size = 12 * 16 * 5 * 7
    sent: dict[tuple[int, int], float] = defaultdict(float)
    for src, dst, n in zip(s.src, s.dst, s.elements(int(size * buffer_ratio(s))), strict=True):
        sent[int(src), int(dst)] += n
    outlined: dict[tuple[int, int], float] = defaultdict(float)
    phases = outline(collective, algorithm, layout)
    assert not isinstance(phases, AllPairs)
    for phase in phases:
        for src, dst in zip(phase.src, phase.dst, strict=True):
            outlined[int(src), int(dst)] += phase.share * phase.repeats * size
    assert outlined == pytest.approx(sent)


def test_what_has_no_outline_is_refused_with_what_has() -> None:
    with pytest.raises(TrafficError, match=r"all_reduce by double-binary-tree.*all_reduce by ring"):
        outline("all_reduce", "double-binary-tree", Layout(4096))
    with pytest.raises(TrafficError, match="use --ranks 8192"):
        outline("all_reduce", "halving-doubling", Layout(16000))
