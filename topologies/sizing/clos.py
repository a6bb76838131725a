"""The folded Clos at full bisection: arithmetic of its tiers, from one switch to three tiers.

Leaf (one of `leaves`), and above it, for three tiers, pods of aggregation switches, one in each of `planes` planes; a plane
is a spine-leaf whose leaves are its aggregation switches and whose spines are its cores. With two tiers there is one
plane, and the leaves themselves are at its bottom. With N hosts and switches of k ports, all used, that is 3 N / k
switches and 4 N cable ends for two tiers (N <= k^2 / 2), 5 N / k and 6 N for three (N <= k^3 / 4).
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Clos:
    """hosts_per_leaf: at most the leaf's uplinks; pods: of leaves, in three tiers; tops: spines, or cores of a plane;
    trunk: parallel cables from each top to each switch below it."""

    tiers: int
    leaves: int
    hosts_per_leaf: int
    pods: int = 1
    planes: int = 1
    tops: int = 0
    trunk: int = 0

    @property
    def hosts(self) -> int:
        return self.leaves * self.hosts_per_leaf

    @property
    def bottoms(self) -> int:
        """Switches at the bottom of a plane."""
        return self.pods if self.tiers == 3 else self.leaves

    @property
    def switches(self) -> int:
        aggregations = self.pods * self.planes if self.tiers == 3 else 0
        return self.leaves + aggregations + self.planes * self.tops

    @property
    def uplinks(self) -> int:
        """Cables up of a switch below the tops."""
        return self.tops * self.trunk

    @property
    def radix(self) -> int:
        """Ports of the switch with the most in use: a leaf, an aggregation switch or a top."""
        up = self.planes if self.tiers == 3 else self.uplinks
        leaves_per_pod = -(-self.leaves // self.pods) if self.tiers == 3 else 0
        aggregation = leaves_per_pod + self.uplinks
        return max(self.hosts_per_leaf + up, aggregation, self.bottoms * self.trunk)

    @property
    def top_cables(self) -> int:
        return self.planes * self.bottoms * self.tops * self.trunk

    @property
    def switch_cables(self) -> int:
        """Between switches; a leaf has one to each aggregation switch of its pod."""
        return self.top_cables + (self.leaves * self.planes if self.tiers == 3 else 0)

    @property
    def diameter(self) -> int:
        return 2 * (self.tiers - 1)

    @property
    def path_diversity(self) -> int:
        """A plane, one of its tops, a cable up and one down."""
        return self.planes * self.tops * self.trunk**2 if self.tiers > 1 else 1


def smallest(hosts: int, radix: int, *, tiers: tuple[int, ...] = (1, 2, 3), rails: int = 1) -> Clos | None:
    """The fewest of `tiers` that join so many hosts, then the fewest switches, then cables, then surplus hosts; None where
    none does. rails: a leaf holds hosts of one of them only."""
    for t in tiers:
        found = min(_of_tiers(t, hosts, radix, rails), key=cost, default=None)
        if found:
            return found
    return None


def largest(radix: int, *, tiers: tuple[int, ...] = (1, 2, 3), rails: int = 1) -> int:
    """Hosts of the largest: k, k floor(k/2), 2 floor(k/2)^3; the leaves of whole sets of rails only."""
    half = radix // 2
    leaves_and_hosts = {1: (1, radix), 2: (radix, half), 3: (2 * half**2, half)}
    return max(leaves // rails * rails * hosts for leaves, hosts in map(leaves_and_hosts.__getitem__, tiers))


def moved_when_doubled(clos: Clos, radix: int, most_tiers: int = 3) -> int | None:
    """Cables that are unplugged when as many leaves again are added; None where more than `most_tiers` would be needed.

    As long as the tops have room, their trunks get thinner: a trunk of t becomes one of t' <= t, the largest divisor of the
    uplinks that leaves every top at most `radix` cables, and (t - t') / t of the cables to the tops move to new tops: half
    of them where all ports were used, none where spare ones were bought. Without room for the thinnest trunk a tier is
    put on top, to which every top gives the half of its ports; a single switch keeps the half of its hosts.
    """
    if clos.tiers == 1:
        return max(0, clos.hosts - radix // 2) if 2 * clos.hosts > radix else 0
    thinner = [t for t in range(1, clos.trunk + 1) if clos.uplinks % t == 0 and 2 * clos.bottoms * t <= radix]
    if thinner:
        return clos.top_cables * (clos.trunk - max(thinner)) // clos.trunk
    if clos.tiers == most_tiers:
        return None
    return clos.tops * max(0, clos.leaves * clos.trunk - radix // 2)


def cost(clos: Clos) -> tuple[int, int, int]:
    """What the smallest has the least of, in this order."""
    return clos.switches, clos.switch_cables, clos.hosts


def _of_tiers(tiers: int, hosts: int, radix: int, rails: int) -> Iterator[Clos]:
    if tiers == 1 and hosts <= radix and rails == 1:
        yield Clos(1, 1, hosts)
    if tiers == 2:
        yield from two_tiers(hosts, radix, radix, rails)
    if tiers == 3:
        for k in range(2, radix + 1, 2):
            yield from _three_tiers(hosts, k, rails)


def two_tiers(hosts: int, radix: int, spine_ports: int, rails: int = 1) -> Iterator[Clos]:
    """Every number of spines and width of trunk, a leaf having at most as many hosts as uplinks. spine_ports: of a spine,
    that are free for leaves."""
    for trunk in range(1, radix):
        for spines in range(1, (radix - 1) // trunk + 1):
            uplinks = spines * trunk
            leaves, hosts_per_leaf = _leaves(hosts, min(uplinks, radix - uplinks), rails)
            if leaves * trunk <= spine_ports:
                yield Clos(2, leaves, hosts_per_leaf, tops=spines, trunk=trunk)


def _three_tiers(hosts: int, k: int, rails: int) -> Iterator[Clos]:
    """Pods of k-port switches, as many as needed, the last one with the leaves that are needed."""
    half = k // 2
    leaves, hosts_per_leaf = _leaves(hosts, half, rails)
    pods = -(-leaves // half)
    for trunk in range(1, half + 1):
        if half % trunk == 0 and pods * trunk <= k and pods > 1:
            yield Clos(3, leaves, hosts_per_leaf, pods=pods, planes=half, tops=half // trunk, trunk=trunk)


def _leaves(hosts: int, most_per_leaf: int, rails: int) -> tuple[int, int]:
    """(leaves, hosts per leaf): the fewest leaves, evenly filled."""
    per_rail = -(-hosts // rails)
    leaves = -(-per_rail // most_per_leaf)
    return rails * leaves, -(-per_rail // leaves)
