"""What is asked of a fabric, and the counts of the instance that answers it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topologies.bill import Bill, bill_of
from topologies.errors import TopologyError


@dataclass(frozen=True)
class Want:
    """accelerators: at least so many; radix: ports of every packet switch, all of one rate; hb_domain: accelerators of a
    server, which rail fabrics have a rail for each of."""

    accelerators: int
    radix: int
    hb_domain: int = 8

    def __post_init__(self) -> None:
        for key, least in (("accelerators", 2), ("radix", 2), ("hb_domain", 1)):
            if getattr(self, key) < least:
                option = "--" + key.replace("_", "-")
                raise TopologyError(f"{option} {getattr(self, key)} is too small: use {least} or more")


class Unreachable(TopologyError):
    """A fabric that cannot be as large as asked at that radix. most: accelerators at its largest, 0 = none at all."""

    def __init__(self, why: str, most: int) -> None:
        super().__init__(f"{why}: at most {most} accelerators" if most else why)
        self.most = most


@dataclass(frozen=True)
class Size:
    """One instance, by counts.

    parameters: the topology's own where `buildable`, else what describes it; switches: packet switches, beside `ocs` optical
    ones; cables: by where they run (bill.RUNS);
    bisection_links: links of the host rate across the worst even split of the servers; diameter: links between switches on
    the longest shortest path; path_diversity: equal-cost paths between the farthest; radix: ports of the switch with the
    most in use; moved: cables that are unplugged when the number of accelerators doubles, None: it cannot double at this
    radix; shape: further ratios that a smaller sibling should keep; note: what to know of these figures. A figure that
    does not exist is None.
    """

    fabric: str
    parameters: Mapping[str, int | str]
    hosts: int
    switches: int
    cables: Mapping[str, int]
    bisection_links: float | None
    diameter: int | None
    path_diversity: int | None
    radix: int
    moved: int | None
    ocs: int = 0
    buildable: bool = True
    shape: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def text(self) -> str:
        """What --topology takes, where it is buildable."""
        return f"{self.fabric}:{','.join(f'{key}={value}' for key, value in self.parameters.items())}"

    @property
    def bisection_share(self) -> float | None:
        """Of what half of the hosts can send."""
        return None if self.bisection_links is None else self.bisection_links / (self.hosts / 2)

    def bill(self, rate_gbps: float, optics: str = "dsp") -> Bill:
        """Every cable at one rate."""
        cables = {(run, rate_gbps): n for run, n in self.cables.items()}
        return bill_of(cables, self.switches, self.ocs, optics)
