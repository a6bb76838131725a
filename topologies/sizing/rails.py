"""Sizes of the rail fabrics: a server has `hb_domain` accelerators, one on each rail; accelerators are whole servers."""

from dataclasses import replace

from topologies.sizing import clos
from topologies.sizing.size import Size, Unreachable, Want
from topologies.sizing.trees import of_clos


def rail_optimised(want: Want) -> Size:
    """A folded Clos of two or three tiers, each of whose leaves has accelerators of one rail."""
    rails, servers = want.hb_domain, -(-want.accelerators // want.hb_domain)
    found = clos.smallest(servers * rails, want.radix, tiers=(2, 3), rails=rails)
    if found is None:
        most = clos.largest(want.radix, tiers=(2, 3), rails=rails)
        raise Unreachable(f"three tiers of radix {want.radix} in {rails} rails", most)
    buildable = (found.tiers, found.leaves, found.trunk) == (2, rails, 1)
    per_rail = found.leaves // rails
    parameters = {"servers": found.hosts // rails, "gpus_per_server": rails, "spines": found.planes * found.tops}
    return of_clos(
        "rail-optimised", parameters, found, moved=clos.moved_when_doubled(found, want.radix), buildable=buildable,
        shape={"accelerators per server": rails, "leaves per rail": per_rail},
        note="" if buildable else f"{found.tiers} tiers, leaves per rail: {per_rail}, cables per leaf and spine: {found.trunk}",
    )  # fmt: skip


def superpod(want: Want) -> Size:
    """Scalable units with a leaf per rail, whose leaves have as many uplinks as servers; two tiers."""
    rails, servers = want.hb_domain, -(-want.accelerators // want.hb_domain)
    ways = clos.two_tiers(servers * rails, want.radix, want.radix, rails)
    fitting = [replace(way, hosts_per_leaf=way.uplinks) for way in ways if 2 * way.uplinks <= want.radix]
    if not fitting:
        most = clos.largest(want.radix, tiers=(2,), rails=rails)
        raise Unreachable(f"two tiers of radix {want.radix}, with {rails} leaves to a unit", most)
    found = min(fitting, key=clos.cost)
    units = found.leaves // rails
    return of_clos(
        "superpod",
        {"units": units, "servers_per_unit": found.hosts_per_leaf, "gpus_per_server": rails, "spines": found.tops},
        found, moved=clos.moved_when_doubled(found, want.radix, most_tiers=2),
        shape={"accelerators per server": rails, "units": units, "leaves per spine": found.leaves / found.tops},
    )  # fmt: skip


def rail_only(want: Want) -> Size:
    """A folded Clos of its own for each rail, as small as it can be; rails of which several fit on a switch share it.

    Doubling doubles each rail. Where fewer rails fit on a switch then, those beyond leave it for another.
    """
    rails, per_rail = want.hb_domain, -(-want.accelerators // want.hb_domain)
    found = clos.smallest(per_rail, want.radix)
    if found is None:
        raise Unreachable(f"{rails} rails of three tiers of radix {want.radix}", rails * clos.largest(want.radix))
    shared = min(rails, want.radix // per_rail) if found.tiers == 1 else 1
    switches = -(-rails // shared) * found.switches
    moved = clos.moved_when_doubled(found, want.radix)
    if shared > 1:
        moved = max(0, rails - switches * max(1, want.radix // (2 * per_rail))) * per_rail
    buildable = found.tiers == 1 and shared == 1 and rails > 1
    size = of_clos(
        "rail-only", {"servers": found.hosts, "gpus_per_server": rails}, found, moved=moved, buildable=buildable,
        shape={"accelerators per server": rails, "rails per switch": shared, "tiers of a rail": found.tiers},
    )  # fmt: skip
    return replace(
        size,
        hosts=rails * size.hosts,
        switches=switches,
        cables={run: rails * n for run, n in size.cables.items()},
        bisection_links=rails * (found.hosts // 2),
        radix=shared * found.hosts if shared > 1 else found.radix,
        moved=moved if moved is None or shared > 1 else rails * moved,
        note="bisection and diameter within rails; other pairs meet in HB domains",
    )
