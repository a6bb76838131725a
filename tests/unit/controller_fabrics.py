"""Fabrics that the controller's tests share."""

from collections.abc import Collection

import networkx as nx

from topologies.builder import FabricBuilder
from topologies.fabric import Fabric, Link


def three_tier() -> Fabric:
    """Two pods (two leaves, two aggregation switches each) and four cores: two choices in a row between pods.

    Names without digits: datapath ids come from the fabric, not from names.
    """
    fabric = FabricBuilder("three-tier", {})
    cores = [fabric.switch(f"core{c}", "core") for c in "ABCD"]
    for pod, name in enumerate(("left", "right")):
        aggregations = [fabric.switch(f"{name}Agg{c}", "aggregation") for c in "AB"]
        for a, core in ((0, 0), (0, 1), (1, 2), (1, 3)):
            fabric.link(aggregations[a], cores[core], "scale-out")
        for i, c in enumerate("AB"):
            number = 2 * pod + i
            leaf = fabric.switch(f"{name}Leaf{c}", "leaf", prefix=f"198.18.0.{8 * number}/29")
            for j in (1, 2):
                fabric.link(fabric.host(f"{name}{c}{j}", f"198.18.0.{8 * number + j}"), leaf, "scale-out")
            for aggregation in aggregations:
                fabric.link(leaf, aggregation, "scale-out")
    return fabric.build()


def two_rails() -> Fabric:
    """Two islands that no link joins; one switch owns no prefix, only its hosts' addresses."""
    fabric = FabricBuilder("two-rails", {})
    for rail, prefix in ((0, "198.18.0.0/30"), (1, None)):
        switch = fabric.switch(f"rail{rail}", "leaf", prefix=prefix)
        for i in (1, 2):
            fabric.link(fabric.host(f"h{rail}{i}", f"198.18.0.{4 * rail + i}"), switch, "scale-out")
    return fabric.build()


def jellyfish(n_switches: int, degree: int) -> Fabric:
    """A random regular graph of switches, one host on each (Singla et al., NSDI 2012)."""
    fabric = FabricBuilder("jellyfish", {})
    for i in range(n_switches):
        switch = fabric.switch(f"s{i}", "switch", prefix=f"198.18.0.{4 * i}/30")
        fabric.link(fabric.host(f"h{i}", f"198.18.0.{4 * i + 1}"), switch, "scale-out")
    for a, b in sorted(nx.random_regular_graph(degree, n_switches, seed=1).edges):
        fabric.link(f"s{a}", f"s{b}", "scale-out")
    return fabric.build()


def ring(n: int, hosts_at: Collection[int] | None = None) -> Fabric:
    """A ring of switches with one host each, or at some of them: the fabric in which micro-loops are easiest."""
    fabric = FabricBuilder("ring", {})
    names = [fabric.switch(f"s{i}", "leaf", prefix=f"198.18.0.{4 * i}/30") for i in range(n)]
    for i in range(n) if hosts_at is None else hosts_at:
        fabric.link(fabric.host(f"h{i}", f"198.18.0.{4 * i + 1}"), names[i], "scale-out")
    for i, name in enumerate(names):
        fabric.link(name, names[(i + 1) % n], "scale-out")
    return fabric.build()


def link_between(fabric: Fabric, a: str, b: str) -> Link:
    return next(link for link in fabric.links if {link.a.node, link.b.node} == {a, b})


def address(fabric: Fabric, host: str) -> str:
    ip = fabric.scale_out_port(host).ip
    assert ip
    return ip
