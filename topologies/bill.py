"""The parts of a fabric's network: NICs, switch ports, optical switch ports, cables and transceivers by medium.

A cable's medium follows from its length, and its length from where it runs. What is inside a server (scale-up links and
their switches) is no part of the network and not counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from topologies.errors import TopologyError, unknown
from topologies.fabric import Fabric, Link
from topologies.prices import DEFAULT_PRICES, REFERENCE_GBPS, Price, Prices
from topologies.shaping import OCS_ROLE
from topologies.tiers import hb_domains, network_switches, scale_out_links, tiers

# Copper and AOC as sold for 400 Gbit/s; 2 km is the reach of FR4 optics, beyond which light is coherent.
DAC_REACH_M, AOC_REACH_M, FIBRE_REACH_M = 3.0, 30.0, 2000.0
FIBRE_M_PER_US = 200.0
# The technology at both ends of a fibre.
OPTICS = ("dsp", "lpo", "cpo")
CABLES = ("dac", "aoc", "fibre")
TRANSCEIVERS = (*OPTICS, "coherent")
_ANY_RATE = ("switch", "ocs", "ocs_port", "fibre")


@dataclass(frozen=True)
class Run:
    """Where a cable runs: how long it is, and the kind of port at each end."""

    length_m: float
    ends: tuple[str, str]


_HOST, _SWITCHES = ("nic", "switch_port"), ("switch_port", "switch_port")
RUNS: dict[str, Run] = {
    "in-rack": Run(2, _HOST),  # a server and its switch share the rack
    "rail": Run(15, _HOST),  # a server's NICs go to a leaf each, which stand at the end of the row
    "tier": Run(50, _SWITCHES),  # leaves stand in the rows, spines and cores in a row of their own
    "local": Run(5, _SWITCHES),  # to the next racks: within a dragonfly's group, around a (folded) torus
    "global": Run(50, _SWITCHES),  # across the hall
    "circuit": Run(50, ("switch_port", "ocs_port")),  # optical switches stand where spines would
    "long-haul": Run(100_000, _SWITCHES),  # between sites: a global link whose delay is that of more than 2 km
}


@dataclass(frozen=True)
class Bill:
    """parts: (part's name in Prices, rate in Gbit/s) -> how many."""

    parts: Mapping[tuple[str, float], int]

    def count(self, *names: str) -> int:
        return sum(n for (name, _), n in self.parts.items() if name in names)

    @property
    def by_cable(self) -> dict[str, int]:
        """Cables by medium, those that there are."""
        return {medium: self.count(medium) for medium in CABLES if self.count(medium)}

    @property
    def transceivers(self) -> int:
        """Modules or co-packaged engines; what is moulded to a DAC or an AOC is part of the cable."""
        return self.count(*TRANSCEIVERS)

    @property
    def cable_ends(self) -> int:
        """Two of each cable but for those in an optical switch, whatever the medium: what papers count as transceivers."""
        return self.count("nic", "switch_port")

    def cost_usd(self, prices: Prices = DEFAULT_PRICES) -> float:
        return sum(self._price(prices, item).usd * self._share(item) * n for item, n in self.parts.items())

    def power_w(self, prices: Prices = DEFAULT_PRICES) -> float:
        return sum(self._price(prices, item).watts * self._share(item) * n for item, n in self.parts.items())

    def failures_per_year(self, prices: Prices = DEFAULT_PRICES) -> float:
        """Expected number; each part fails by itself."""
        return sum(self._price(prices, item).failures_per_year * n for item, n in self.parts.items())

    @staticmethod
    def _price(prices: Prices, item: tuple[str, float]) -> Price:
        price: Price = getattr(prices, item[0])
        return price

    @staticmethod
    def _share(item: tuple[str, float]) -> float:
        name, rate_gbps = item
        return 1.0 if name in _ANY_RATE else rate_gbps / REFERENCE_GBPS


def bill(fabric: Fabric, optics: str = "dsp") -> Bill:
    """The bill of a fabric's graph, scale-up left out. optics: one of OPTICS, at both ends of every fibre."""
    tier, in_rails = tiers(fabric), _in_rails(fabric)
    cables = Counter((_run(fabric, link, tier, in_rails), link.rate_mbps / 1e3) for link in scale_out_links(fabric))
    switches = Counter(switch.role == OCS_ROLE for switch in network_switches(fabric))
    return bill_of(cables, switches[False], switches[True], optics)


def bill_of(cables: Mapping[tuple[str, float], int], switches: int, ocs: int = 0, optics: str = "dsp") -> Bill:
    """The bill of counts. cables: (one of RUNS, rate in Gbit/s) -> how many; switches, ocs: packet and optical ones."""
    if optics not in OPTICS:
        raise TopologyError(unknown("optics", optics, OPTICS))
    parts: Counter[tuple[str, float]] = Counter()
    for (run, rate_gbps), n in cables.items():
        for name in (*RUNS[run].ends, *_cable(RUNS[run], optics)):
            parts[name, rate_gbps] += n
    parts["switch", 0.0], parts["ocs", 0.0] = switches, ocs
    return Bill({item: n for item, n in parts.items() if n})


def _cable(run: Run, optics: str) -> Iterator[str]:
    """The cable and what is at its ends. An optical switch passes light on, so its cables are fibre at any length."""
    passive = "ocs_port" in run.ends
    if run.length_m <= DAC_REACH_M and not passive:
        yield "dac"
    elif run.length_m <= AOC_REACH_M and not passive:
        yield "aoc"
    else:
        yield "fibre"
        module = optics if run.length_m <= FIBRE_REACH_M else "coherent"
        yield from (module for end in run.ends if end != "ocs_port")


def _run(fabric: Fabric, link: Link, tier: Mapping[str, int], in_rails: frozenset[str]) -> str:
    for port in link.ports:
        if fabric.node(port.node).is_host:
            return "rail" if port.node in in_rails else "in-rack"
    if link.kind == "global":
        return "long-haul" if link.delay_us * FIBRE_M_PER_US > FIBRE_REACH_M else "global"
    if link.kind == "scale-out":
        return "local" if tier[link.a.node] == tier[link.b.node] else "tier"
    return link.kind


def _in_rails(fabric: Fabric) -> frozenset[str]:
    """Hosts whose server, an HB domain, is plugged into several switches."""
    spread = (hosts for hosts in hb_domains(fabric) if len({fabric.switch_of(h) for h in hosts}) > 1)
    return frozenset(host for hosts in spread for host in hosts)
