"""Is the link that a prediction names the one that counts? The collective runs as it is, with that link twice as fast, and with
another one twice as fast: time falls in the first case only."""

import random
import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure, joined
from lab.planning.experiment import SETTINGS, load
from lab.planning.forecast import forecast_of
from lab.planning.plan import plan
from lab.planning.scale import Scale

# Of `accuracy`'s cases those where by prediction one link is ahead of all others by a tenth or more.
_CASES = (
    ("spine-leaf:spines=2,leaves=4,hosts_per_leaf=4", "double-binary-tree"),
    ("spine-leaf:spines=2,leaves=4,hosts_per_leaf=4", "halving-doubling"),
    ("dragonfly:a=2,p=2,h=1,g=3", "double-binary-tree"),
    ("ocs-leaf:leaves=4,hosts_per_leaf=4", "double-binary-tree"),
)
_AHEAD = 0.1
_RATE_MBPS, _SEED, _DEADLINE_S = 20, 1, 240
_FALLS, _STAYS = Target("ratio", high=0.95), Target("ratio", 0.96, 1.04)
_SPED = """
from dataclasses import dataclass, replace
from topologies import topology

@dataclass(frozen=True)
class Sped:
    '''link: the place of the one that is twice as fast, -1 = none'''
    link: int = -1

    def build(self):
        fabric = topology({spec!r}).build()
        links = (replace(x, rate_mbps=2 * x.rate_mbps) if i == self.link else x for i, x in enumerate(fabric.links))
        return replace(fabric, links=tuple(links))

    def closed_form(self):
        return topology({spec!r}).closed_form()
"""


def bottleneck(*, quick: bool) -> list[Figure]:
    figures = []
    for spec, algorithm in _CASES[:1] if quick else _CASES:
        with tempfile.TemporaryDirectory(prefix="bench-") as made:
            file = Path(made) / "sped.py"
            file.write_text(_SPED.format(spec=spec))
            figures += _case(file, f"{spec.partition(':')[0]}, {algorithm}", algorithm)
    return figures


def _case(file: Path, name: str, algorithm: str) -> list[Figure]:
    expected, scale = forecast_of(plan(load(None, _asked(file, -1, algorithm))), Scale()), Scale()
    (size,) = expected.plan.sizes(scale)
    found = expected.prediction(size, scale)
    assert found
    fabric = expected.emulated
    busy: dict[int, float] = {}
    for intf, n in found.bytes_by_intf.items():
        link = fabric.link_of(intf)
        place = fabric.links.index(link)
        busy[place] = max(busy.get(place, 0.0), n / link.rate_mbps)
    named = max(busy, key=busy.__getitem__)
    other = random.Random(_SEED).choice([place for place in busy if place != named])
    if found.ahead < _AHEAD:
        raise SystemExit(f"bench.py: {name}: {found.bottleneck} is {found.ahead:.0%} ahead only: take another case")
    (before_s, before), (it_s, it), (other_s, one) = (_timed(file, place, algorithm) for place in (-1, named, other))
    ahead = joined(f"by prediction {found.bottleneck}, {found.ahead:.0%} ahead of the next", before, it)
    a, b = fabric.links[other].ports
    return [
        figure(f"{name}: it", it_s, "s", _FALLS, peer=before_s, note=ahead),
        figure(f"{name}: another", other_s, "s", _STAYS, peer=before_s, note=joined(f"{a.node} - {b.node}", one)),
    ]


def _asked(file: Path, link: int, algorithm: str) -> dict[str, object]:
    """Others keep their rate where one is twice as fast: --link-rate is that of the fastest."""
    rate = _RATE_MBPS * (1 if link < 0 else 2)
    network = {"topology": f"{file}:Sped:link={link}", "link_rate": f"{rate}Mbit"}
    return {**network, "collective": "all_reduce", "algorithm": algorithm, "min_bytes": "5M", "max_bytes": "5M"}


def _timed(file: Path, link: int, algorithm: str) -> tuple[float, str]:
    asked = _asked(file, link, algorithm)
    options = [text for key, value in asked.items() for text in (SETTINGS[key].option, str(value))]
    _, (row,) = machine.run(*options, "--scale", 1, "-n", 2, "-w", 1, python=sys.executable, deadline_s=_DEADLINE_S)
    return float(row["time_s"]), machine.complaint(row)
