"""What the rail fabrics have in common: servers, each an HB domain of accelerators, and a leaf for each rail.

Rail r is every accelerator that is the r-th of its server. An accelerator's first interface is its NIC, on its rail's leaf;
the second is on its server's scale-up switch (NVSwitch and its like).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from topologies.addressing import grouped_prefixes, host_ip, scale_up_prefixes
from topologies.builder import FabricBuilder
from topologies.errors import TopologyError
from topologies.topology import ClosedForm

# One direction of the 900 GB/s of NVLink 4, beside which NICs run 400 Gbit/s.
DEFAULT_HB_RATE_GBPS = 3600.0
# What every rail fabric calls that rate.
HB_RATE = "hb_rate_gbps"


def require_rate(parameters: Any) -> None:
    """Refuse an hb_rate_gbps at which nothing moves."""
    if not parameters.hb_rate_gbps > 0:
        raise TopologyError(
            f"hb_rate_gbps={parameters.hb_rate_gbps:g} must be positive: it is {DEFAULT_HB_RATE_GBPS:g} by default"
        )


def add_servers(fabric: FabricBuilder, units: int, servers: int, accelerators: int, hb_rate_gbps: float) -> list[str]:
    """`units` scalable units of `servers` servers, every unit with a leaf per rail. Returns the leaves, unit by unit.

    hb_rate_gbps: of an accelerator's scale-up link, in each direction.
    """
    leaves: list[str] = []
    inside = scale_up_prefixes(units * servers, accelerators)
    for unit, prefixes in enumerate(grouped_prefixes(units, accelerators, servers)):
        rails = [
            fabric.switch(f"leaf{unit * accelerators + r + 1}", "leaf", prefix=str(prefix), group=unit)
            for r, prefix in enumerate(prefixes)
        ]
        for i in range(servers):
            server = unit * servers + i
            scale_up = fabric.switch(f"hb{server + 1}", "scale-up", prefix=str(inside[server]))
            for r, leaf in enumerate(rails):
                ips = host_ip(prefixes[r], i), host_ip(inside[server], r)
                name = fabric.host(f"s{server + 1}g{r + 1}", *ips, group=server)
                fabric.link(name, leaf, "scale-out")
                fabric.link(name, scale_up, "scale-up", rate_mbps=hb_rate_gbps * 1e3)
        leaves += rails
    return leaves


def join(fabric: FabricBuilder, leaves: Iterable[str], spines: Sequence[str], links_per_pair: int = 1) -> None:
    """Every leaf to every spine."""
    for leaf in leaves:
        for spine in spines:
            for _ in range(links_per_pair):
                fabric.link(leaf, spine, "scale-out")


def with_hb_domains(network: ClosedForm, servers: int, accelerators: int) -> ClosedForm:
    """What is inside the servers, beside the network."""
    return replace(network, scale_up_switches=servers, scale_up_links=servers * accelerators)
