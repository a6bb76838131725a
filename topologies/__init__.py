"""What the network is: parameters -> Fabric. One file per topology; one adapter turns a Fabric into Mininet's objects.

To add a topology: a file with a frozen dataclass that has `build()` and `closed_form()`, and a line in TOPOLOGIES. The
command line, the help, stock Mininet's `--topo` and the registry-wide tests pick it up from here.
"""

from typing import Any

from topologies.dragonfly import Dragonfly
from topologies.errors import Refused, TopologyError, unknown
from topologies.fabric import Fabric, Link, Node, Port
from topologies.fat_tree import FatTree
from topologies.imported import Imported, is_graph_file
from topologies.multi_dc import MultiDc
from topologies.ocs_dragonfly import OcsDragonfly
from topologies.ocs_leaf import OcsLeaf
from topologies.rail_only import RailOnly
from topologies.rail_optimised import RailOptimised
from topologies.spine_leaf import SpineLeaf
from topologies.superpod import SuperPod
from topologies.three_tier import ThreeTier
from topologies.topology import ClosedForm, Topology, parse_topology
from topologies.torus import Torus

TOPOLOGIES: dict[str, type[Any]] = {
    "spine-leaf": SpineLeaf,
    "three-tier": ThreeTier,
    "fat-tree": FatTree,
    "dragonfly": Dragonfly,
    "rail-optimised": RailOptimised,
    "rail-only": RailOnly,
    "superpod": SuperPod,
    "ocs-leaf": OcsLeaf,
    "ocs-dragonfly": OcsDragonfly,
    "multi-dc": MultiDc,
    "torus": Torus,
}


def topology(spec: str) -> Topology:
    """'spine-leaf:spines=4', './mine.py:MyTopology' or './mine.graphml' -> the topology."""
    return Imported(spec) if is_graph_file(spec) else parse_topology(spec, TOPOLOGIES)


__all__ = [
    "TOPOLOGIES",
    "ClosedForm",
    "Fabric",
    "Link",
    "Node",
    "Port",
    "Refused",
    "Topology",
    "TopologyError",
    "topology",
    "unknown",
]
