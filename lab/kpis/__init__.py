"""Key figures, by the names and formulas of the IETF BMWG drafts on AI fabrics (draft-calabria-bmwg-ai-fabric-training-bench,
work in progress) and of nccl-tests. Pure functions of numbers and tables, a file for each family.
"""

from lab.kpis.arrays import Floats, Ints
from lab.kpis.balance import Balance, balance, jfi, mmr, parallel_uplinks
from lab.kpis.collisions import CollisionBand, collision_band, flows_per_group
from lab.kpis.fairness import jfi_band
from lab.kpis.goodput import Goodput, first_done_s, goodput, sender_shares
from lab.kpis.times import (
    IterationStats,
    algbw_gbytes_s,
    busbw_efficiency_percent,
    busbw_gbit_s,
    covered,
    cv,
    interference_factor,
    iteration_stats,
    jct_ratio,
    overlap_fraction,
    percentile,
)

__all__ = [
    "Balance", "CollisionBand", "Floats", "Goodput", "Ints", "IterationStats", "algbw_gbytes_s", "balance",
    "busbw_efficiency_percent", "busbw_gbit_s", "collision_band", "covered", "cv", "first_done_s", "flows_per_group",
    "goodput", "interference_factor", "iteration_stats", "jct_ratio", "jfi", "jfi_band", "mmr", "overlap_fraction",
    "parallel_uplinks", "percentile", "sender_shares",
]  # fmt: skip
