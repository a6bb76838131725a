"""A fabric of a user's own as a topology: the file of a graph, read anew by each build."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.graphml import from_graphml
from topologies.infragraph import from_infragraph
from topologies.tiers import network_switches, scale_out_links, scale_up_switches
from topologies.topology import ClosedForm

READERS: dict[str, Callable[[bytes], Fabric]] = {
    ".graphml": from_graphml,
    ".yaml": from_infragraph,
    ".yml": from_infragraph,
    ".json": from_infragraph,
}


def is_graph_file(spec: str) -> bool:
    """Whether a text form means one; parameters after it are refused later, for a file has none."""
    return Path(spec.partition(":")[0]).suffix in READERS


@dataclass(frozen=True)
class Imported:
    """file: GraphML (.graphml) or InfraGraph (.yaml, .json). The fabric is called after it, even where the file was exported
    from one of ours: it may have been edited since, so that no closed form holds."""

    file: str

    def __post_init__(self) -> None:
        if Path(self.file).suffix not in READERS:
            raise TopologyError(f"topology {self.file!r}: write a file in {', '.join(READERS)}, without parameters")

    def build(self) -> Fabric:
        path = Path(self.file).expanduser()
        try:
            fabric = READERS[path.suffix](path.read_bytes())
        except OSError as error:
            raise TopologyError(f"topology {self.file!r}: cannot be read: {error.strerror}") from None
        except TopologyError as error:
            raise TopologyError(f"topology {self.file!r}: {error}") from None
        return replace(fabric, name=path.name, parameters=asdict(self))

    def closed_form(self) -> ClosedForm:
        """Counts of the graph itself: nothing is known of it beforehand."""
        fabric = self.build()
        network, inside = scale_out_links(fabric), scale_up_switches(fabric)
        return ClosedForm(
            hosts=len(fabric.accelerators),
            switches=len(network_switches(fabric)),
            links=len(network),
            diameter=None,
            bisection_links=None,
            path_diversity=None,
            scale_up_switches=len(inside),
            scale_up_links=sum(link.kind == "scale-up" for link in fabric.links),
        )
