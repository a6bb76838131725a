"""How the parallel uplinks of each stage were shared, beside what chance alone does. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from lab.kpis import collision_band, flows_per_group, jfi, jfi_band, mmr, parallel_uplinks
from lab.rows import GroupBalance
from topologies.fabric import Fabric, Port
from topologies.tiers import tiers


def group_balances(
    fabric: Fabric, paths: Iterable[Sequence[Port]], sent_by_intf: Mapping[str, float], *, size_bytes: int
) -> list[GroupBalance]:
    """One for each switch with parallel uplinks. paths: of the data flows, egress port by port; empty where none is known."""
    groups, stage = parallel_uplinks(fabric), tiers(fabric)
    flows = flows_per_group(paths, groups)
    found = []
    for switch, ports in groups.items():
        loads = [sent_by_intf.get(port.intf, 0.0) for port in ports]
        n = flows.get(switch, 0)
        largest, jain = collision_band(n, len(ports)), jfi_band(n, len(ports))
        found.append(
            GroupBalance(
                size_bytes=size_bytes, stage=stage[switch], switch=switch, links=len(ports), flows=n,
                bytes_sent=round(sum(loads)), mmr=mmr(loads), jfi=jfi(loads),
                mmr_expected=largest.expected, mmr_low=largest.low, mmr_high=largest.high,
                jfi_expected=jain.expected, jfi_low=jain.low, jfi_high=jain.high,
            )
        )  # fmt: skip
    return found
