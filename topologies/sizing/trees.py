"""Sizes of the trees: spine-leaf, fat-tree, the oversubscribed three-tier, and sites of spine-leaf far apart."""

from collections.abc import Iterator, Mapping

from topologies.multi_dc import MultiDc
from topologies.sizing import clos
from topologies.sizing.clos import Clos
from topologies.sizing.size import Size, Unreachable, Want
from topologies.three_tier import AGGREGATIONS_PER_POD, ThreeTier


def spine_leaf(want: Want) -> Size:
    """A folded Clos of at most two tiers."""
    found = clos.smallest(want.accelerators, want.radix, tiers=(1, 2))
    if found is None:
        raise Unreachable(f"two tiers of radix {want.radix}", clos.largest(want.radix, tiers=(1, 2)))
    return of_clos(
        "spine-leaf", spine_leaf_parameters(found), found,
        moved=clos.moved_when_doubled(found, want.radix, most_tiers=2),
        shape={"leaves per spine": found.leaves / found.tops} if found.tops else {},
    )  # fmt: skip


def spine_leaf_parameters(found: Clos) -> dict[str, int]:
    return {
        "spines": found.tops, "leaves": found.leaves, "hosts_per_leaf": found.hosts_per_leaf,
        "links_per_pair": max(found.trunk, 1),
    }  # fmt: skip


def fat_tree(want: Want) -> Size:
    """Three tiers at full bisection, k even and at most the radix; fewer pods than k where they are enough, and then trunks
    to fewer cores."""
    found = clos.smallest(want.accelerators, want.radix, tiers=(3,))
    if found is None:
        raise Unreachable(f"three tiers of radix {want.radix}", clos.largest(want.radix, tiers=(3,)))
    k = 2 * found.planes
    full = found.hosts == k**3 // 4
    return of_clos(
        "fat-tree", {"k": k} if full else {"k": k, "pods": found.pods}, found,
        moved=clos.moved_when_doubled(found, want.radix), buildable=full,
        note="" if full else f"{found.pods} pods of {k}, with trunks to fewer cores",
    )  # fmt: skip


def of_clos(
    fabric: str, parameters: Mapping[str, int | str], found: Clos, *, moved: int | None, buildable: bool = True,
    shape: Mapping[str, float] | None = None, note: str = "",
) -> Size:  # fmt: skip
    """A fabric that is one folded Clos: any half of its hosts sends at full rate. Rail fabrics have gpus_per_server."""
    return Size(
        fabric,
        parameters,
        hosts=found.hosts,
        switches=found.switches,
        cables={"rail" if "gpus_per_server" in parameters else "in-rack": found.hosts, "tier": found.switch_cables},
        bisection_links=found.hosts // 2,
        diameter=found.diameter,
        path_diversity=found.path_diversity,
        radix=found.radix,
        moved=moved,
        buildable=buildable,
        shape={"parallel cables": found.trunk, **(shape or {})} if found.tiers > 1 else shape or {},
        note=note,
    )


# -- three-tier -----------------------------------------------------------------------------------------------------


def three_tier(want: Want) -> Size:
    """The classic tree, 2:1 at the access and 4:1 at the core.

    Doubling adds as many pods, and cores where the present ones are full: a core's trunk to each pod gets thinner, as in a
    spine-leaf.
    """
    found = min(_three_tiers(want), key=lambda t: (t.closed_form().switches, t.closed_form().links), default=None)
    if found is None:
        pods = (t.access_per_pod * t.hosts_per_access for t in _pods(want.radix))
        raise Unreachable(f"2:1 and 4:1 in three tiers of radix {want.radix}", want.radix * max(pods, default=0))
    form, uplinks = found.closed_form(), _uplinks(found)
    assert form.bisection_links is not None
    trunk = uplinks // found.cores
    thinner = [t for t in range(1, trunk + 1) if _is_trunk(t, uplinks) and 2 * found.pods * t <= want.radix]
    return Size(
        "three-tier",
        {
            "cores": found.cores, "pods": found.pods, "access_per_pod": found.access_per_pod,
            "hosts_per_access": found.hosts_per_access,
        },
        hosts=form.hosts,
        switches=form.switches,
        cables={"in-rack": form.hosts, "tier": form.links - form.hosts},
        bisection_links=form.bisection_links,
        diameter=form.diameter,
        path_diversity=form.path_diversity,
        radix=max(found.hosts_per_access * 3 // 2, uplinks // AGGREGATIONS_PER_POD * 3, found.pods * trunk),
        moved=found.pods * uplinks * (trunk - max(thinner)) // trunk if thinner else None,
        shape={"pods per core": found.pods / found.cores},
    )  # fmt: skip


def _pods(radix: int) -> Iterator[ThreeTier]:
    """Every shape of a pod, as a tree of two pods with as many cores as uplinks of one. An access switch has half as many
    cables up as hosts, an aggregation switch half as many up as down."""
    for hosts in range(4, radix * 2 // 3 + 1, 4):
        for access in range(1, radix + 1):
            down = access * hosts // 4
            if down % 2 == 0 and down * 3 // 2 <= radix:
                yield ThreeTier(cores=down, pods=2, access_per_pod=access, hosts_per_access=hosts)


def _three_tiers(want: Want) -> Iterator[ThreeTier]:
    for pod in _pods(want.radix):
        pods = max(2, -(-want.accelerators // (pod.access_per_pod * pod.hosts_per_access)))
        uplinks = _uplinks(pod)
        for trunk in range(1, want.radix // pods + 1):
            if _is_trunk(trunk, uplinks):
                yield ThreeTier(uplinks // trunk, pods, pod.access_per_pod, pod.hosts_per_access)


def _uplinks(tree: ThreeTier) -> int:
    """Of a pod."""
    return tree.access_per_pod * tree.hosts_per_access // 4


def _is_trunk(trunk: int, uplinks: int) -> bool:
    """Whether a core may have so many cables of a pod: one, or as many from both of its aggregation switches."""
    return trunk == 1 or (trunk % AGGREGATIONS_PER_POD == 0 and uplinks % trunk == 0)


# -- several sites --------------------------------------------------------------------------------------------------


def multi_dc(want: Want) -> Size:
    """Two sites, each a spine-leaf whose spines keep a port for the border router, with the default long-haul links.

    Doubling doubles each site.
    """
    links = MultiDc.links_per_pair
    sites = clos.two_tiers(-(-want.accelerators // 2), want.radix, want.radix - 1)
    fitting = [site for site in sites if site.tops + links <= want.radix]
    if not fitting:
        most = 2 * (want.radix - 1) * (want.radix // 2)
        raise Unreachable(f"two sites of two tiers of radix {want.radix}", most if want.radix > 2 else 0)
    site = min(fitting, key=clos.cost)
    moved = clos.moved_when_doubled(site, want.radix - 1, most_tiers=2)
    inside = ";".join(f"{key}={value}" for key, value in spine_leaf_parameters(site).items())
    return Size(
        "multi-dc",
        {"sites": 2, "site": f"spine-leaf({inside})"},
        hosts=2 * site.hosts,
        switches=2 * (site.switches + 1),
        cables={"in-rack": 2 * site.hosts, "tier": 2 * (site.switch_cables + site.tops), "long-haul": links},
        bisection_links=min(links, site.tops, site.hosts),
        diameter=2 * site.tiers + 1,
        path_diversity=None,
        radix=max(site.hosts_per_leaf + site.uplinks, site.leaves * site.trunk + 1, site.tops + links),
        moved=None if moved is None else 2 * moved,
        shape={"long-haul links": links},
        note="bisection between the sites",
    )
