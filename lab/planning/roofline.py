"""The roofline: what a collective takes at least, without latency and headers.

Without HB domains it is the BMWG draft's 8 S x algo_factor / B_acc (draft-calabria-bmwg-ai-fabric-training-bench). Inside an
HB domain bytes need no NIC, so with them it is the largest over two cuts, each with the draft's formula:

between HB domains   the domains stand in the accelerators' place: algo_factor of m domains over a domain's NICs together
around accelerators  algo_factor of n ranks over all that an accelerator has, its NIC and its scale-up interface

A pattern or a training step says who sends what to whom: its interface that is busy for longest. A step is also bound by its
calculations and what waits for them.

The cuts are bounds by total bytes: a reduction over m places moves 2 (m - 1) S at least, whoever forwards for whom. In an
all-to-all each rank has a buffer of its own, and g ranks of a domain send (n - g) / n of each; what is gathered or scattered
passes the NICs of the root's domain.

With reducers in the network S leaves each place and enters it once, however many places there are.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lab.model.predictor import roofline_s
from lab.planning.interfaces import Floats, Interfaces, Ints
from topologies.units import format_rate
from traffic.conventions import bus_factor


@dataclass(frozen=True)
class Cut:
    """factor: what must cross it, in times of nccl-tests' size; mbps: the rate at which it can; where: in words."""

    factor: float
    mbps: float
    where: str

    def seconds(self, size_bytes: float) -> float:
        return roofline_s(size_bytes, self.factor, self.mbps)

    def __str__(self) -> str:
        return f"{self.factor:.4g} S / {format_rate(self.mbps)} {self.where}"


@dataclass(frozen=True)
class Computing:
    """A step on a network that takes no time."""

    computing_s: float

    def seconds(self, size_bytes: float) -> float:
        return self.computing_s

    def __str__(self) -> str:
        return f"{self.computing_s * 1e3:.4g} ms of computing, the pipeline's waiting with it"


def busiest_interface(at: Interfaces, src: Ints, dst: Ints, shares: Floats) -> Cut:
    """src, dst: (sends,) ranks; shares: (sends,) of nccl-tests' size that each carries."""
    busy_s = at.busy_s(src, dst, shares)
    busiest = int(busy_s.argmax())
    mbps = float(at.mbps[busiest])
    ports = (*at.scale_out, *at.scale_up)
    return Cut(float(busy_s[busiest] * mbps / 8e-6), mbps, f"at {getattr(ports[busiest], 'intf', '')}")


def worst_cut(collective: str, at: Interfaces, b_acc_mbps: float, *, in_network: bool = False) -> Cut:
    """The cut that takes longest. at: of the collective's members; b_acc_mbps: an accelerator's NIC rates together, the
    smallest rank's; in_network: whether reducers in the network add up."""
    if not in_network:
        return _worst_cut(collective, at, b_acc_mbps, partial(bus_factor, collective))
    cut, counted = _worst_cut(collective, at, b_acc_mbps, lambda _: 1.0), bus_factor(collective, len(at.domain))
    why = f"reducers add up, so S leaves and enters once, and busbw may be {counted:.4g} times the link rate"
    return replace(cut, where=f"{cut.where}: {why}")


def _worst_cut(collective: str, at: Interfaces, b_acc_mbps: float, factor: Callable[[int], float]) -> Cut:
    """factor: of so many places."""
    n = len(at.domain)
    if not any(len(domain) > 1 for domain in at.domains):
        return (
            _of_root(at)
            if collective in ("gather", "scatter")
            else Cut(factor(n), b_acc_mbps, "at each accelerator's NIC")
        )
    sizes = [len(domain) for domain in at.domains]
    nics, scale_up = at.mbps[:n], np.nan_to_num(at.mbps[n:])
    m = len(sizes)
    # Of a single domain no NIC is used.
    around = Cut(
        factor(n),
        float((scale_up + (nics if m > 1 else 0)).mean()),
        f"at each accelerator's {'NIC and ' if m > 1 else ''}scale-up interface",
    )
    if m == 1:
        return around
    if collective in ("gather", "scatter"):
        root = list(at.domains[at.domain[0]])
        between = Cut((n - len(root)) / n, float(nics[root].sum()), "at the NICs of the root's HB domain")
    elif collective in ("all_to_all", "all_to_all_v"):
        between = Cut((n - min(sizes)) / n, b_acc_mbps, "at each accelerator's NIC")
    else:
        between = Cut(factor(m), float(nics.sum()) / m, f"between {m} HB domains, at a domain's NICs")
    return max(between, around, key=lambda cut: cut.factor / cut.mbps)


def _of_root(at: Interfaces) -> Cut:
    """Rank 0 has what is of all others, each of them its own part only: a slower NIC of theirs may still be the fast one."""
    n = len(at.domain)
    root = Cut((n - 1) / n, float(at.mbps[0]), "at the root's NIC")
    other = Cut(1 / n, float(at.mbps[1:n].min()), "at the slowest NIC of the others")
    return max(root, other, key=lambda cut: cut.factor / cut.mbps)
