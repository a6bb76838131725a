"""Announced flows go where they load the fullest link least; all other traffic goes by ECMP.

What a traffic engineer who knows the demands would do: flows that a hash would put on one link are kept apart. Each costs a
rule per switch on its path but the last, so that a switch has one per announced flow at most.
(As Hedera's global first fit, Al-Fares et al., NSDI 2010, with demands announced instead of estimated.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from controller.demand import Demand
from controller.exact_rules import with_exact
from controller.flow import Flow
from controller.paths import Path
from controller.placement import peak_load, place, repaired
from controller.policies.ecmp import ecmp
from controller.rules import SwitchRules
from topologies.fabric import Fabric


@dataclass(frozen=True)
class PerFlow:
    """`paths`: where the announced flows go while no link is down; `peak`: the largest load of a link, 1 = its rate."""

    demands: tuple[Demand, ...] = ()
    paths: Mapping[Flow, Path] = field(default_factory=dict)
    peak: float = 0.0

    multipath: ClassVar[bool] = True

    def __call__(self, fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
        paths = repaired(fabric, down, self.demands, self.paths) if down else self.paths
        return with_exact(ecmp(fabric, down), paths)

    def announced(self, fabric: Fabric, demands: tuple[Demand, ...]) -> "PerFlow":
        paths = place(fabric, demands)
        return PerFlow(demands, paths, peak_load(fabric, demands, paths))

    def summary(self) -> dict[str, Any]:
        return {"flows": len(self.demands), "placed": len(self.paths), "peak_load": round(self.peak, 3)}

    def __str__(self) -> str:
        return "per-flow"
