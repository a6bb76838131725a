"""GraphML, the exchange format that networkx, igraph, Gephi and the Internet Topology Zoo read and write.

A file of ours has a fabric's name and parameters, its nodes in order (id: the name; role, dpid, prefix, group) and its
links in order (kind, rate_mbps, delay_us, ports: the interfaces at its ends). A file of others may have nodes and edges only: see
topologies/draft.py for what is assigned then. Its nodes are called by the attribute `name` (igraph) or else by their id.

Brandes et al., "GraphML Progress Report", Graph Drawing 2001; http://graphml.graphdrawing.org.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topologies.draft import DraftLink, complete, draft_link, draft_node
from topologies.errors import TopologyError
from topologies.fabric import Fabric, Link, Node

_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
# what has it -> attribute -> GraphML's type
_ATTRIBUTES = {
    "graph": {"name": "string", "parameters": "string"},
    "node": {"role": "string", "dpid": "long", "prefix": "string", "group": "int"},
    "edge": {"kind": "string", "rate_mbps": "double", "delay_us": "double", "ports": "string"},
}


def to_graphml(fabric: Fabric) -> str:
    """The fabric as a GraphML document; parameters as one JSON text."""
    root = ET.Element("graphml", xmlns=_NAMESPACE)
    for owner, attributes in _ATTRIBUTES.items():
        for name, type_ in attributes.items():
            ET.SubElement(root, "key", {"id": name, "for": owner, "attr.name": name, "attr.type": type_})
    graph = ET.SubElement(root, "graph", edgedefault="undirected")
    _add_data(graph, {"name": fabric.name, "parameters": json.dumps(dict(fabric.parameters))})
    for node in fabric.nodes:
        _add_data(ET.SubElement(graph, "node", id=node.name), _of_node(node))
    for link in fabric.links:
        edge = ET.SubElement(graph, "edge", source=link.a.node, target=link.b.node)
        _add_data(edge, _of_link(link))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def from_graphml(document: str | bytes) -> Fabric:
    """The fabric of a GraphML document of ours or of others; refuses in one line what is none."""
    root = _parse(document)
    graph = _only_graph(root)
    given = _Attributes.declared(root, "graph").of(graph)
    of_nodes = _Attributes.declared(root, "node")
    nodes: dict[str, Node] = {}
    for element in graph.iterfind("node"):
        id_, attributes = _required(element, "id"), of_nodes.of(element)
        if id_ in nodes:
            raise TopologyError(f"node {id_}: its id is there twice")
        nodes[id_] = draft_node(attributes.get("name", id_), attributes)
    names = {id_: node.name for id_, node in nodes.items()}
    links = list(_links(graph, _Attributes.declared(root, "edge"), names))
    return complete(given.get("name", "graphml"), _parameters(given), list(nodes.values()), links)


# -- writing ----------------------------------------------------------------------------------------------------------


def _of_node(node: Node) -> dict[str, Any]:
    return {name: getattr(node, name) for name in _ATTRIBUTES["node"]}


def _of_link(link: Link) -> dict[str, Any]:
    return {
        "kind": link.kind,
        "rate_mbps": link.rate_mbps,
        "delay_us": link.delay_us,
        "ports": ",".join(port.intf for port in link.ports),
    }


def _add_data(element: ET.Element, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if value is not None:
            ET.SubElement(element, "data", key=name).text = str(value)


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Attributes:
    """What a file declares for graph, node or edge. names: key -> attribute; defaults: attribute -> text."""

    names: Mapping[str, str]
    defaults: Mapping[str, str]

    @staticmethod
    def declared(root: ET.Element, owner: str) -> _Attributes:
        keys = [key for key in root.iterfind("key") if key.get("for", "all") in (owner, "all")]
        names = {key.get("id", ""): key.get("attr.name", "") for key in keys}
        defaults = {key.get("attr.name", ""): key.findtext("default", "") for key in keys}
        return _Attributes(names, {name: text for name, text in defaults.items() if text})

    def of(self, element: ET.Element) -> dict[str, str]:
        """attribute -> text. A key that is not declared is the attribute's name."""
        values = dict(self.defaults)
        for data in element.iterfind("data"):
            key = data.get("key", "")
            values[self.names.get(key, key)] = (data.text or "").strip()
        return {name: text for name, text in values.items() if text}


def _parse(document: str | bytes) -> ET.Element:
    """The root, with tags bare of their namespace, which differs among writers."""
    try:
        root = ET.fromstring(document)
    except (ET.ParseError, LookupError, ValueError) as error:
        raise TopologyError(f"not GraphML: {error}") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _only_graph(root: ET.Element) -> ET.Element:
    graphs = root.findall("graph")
    if root.tag != "graphml" or len(graphs) != 1:
        raise TopologyError(f"not GraphML of one graph: its root is <{root.tag}>, with {len(graphs)} <graph> in it")
    for element in graphs[0]:
        if element.tag not in ("data", "desc", "node", "edge"):
            raise TopologyError(f"not a fabric: there is <{element.tag}> in its graph; only nodes and edges are read")
    return graphs[0]


def _links(graph: ET.Element, attributes: _Attributes, names: Mapping[str, str]) -> Iterator[DraftLink]:
    """names: id -> node"""
    directed = "true" if graph.get("edgedefault") == "directed" else "false"
    for edge in graph.iterfind("edge"):
        ends = _required(edge, "source"), _required(edge, "target")
        what = f"edge {'-'.join(ends)}"
        for end in ends:
            if end not in names:
                raise TopologyError(f"{what}: there is no node {end!r}")
        if edge.get("directed", directed) == "true":
            raise TopologyError(f"{what}: is directed, which no cable is: save the graph as undirected")
        yield draft_link(names[ends[0]], names[ends[1]], attributes.of(edge))


def _parameters(given: Mapping[str, str]) -> dict[str, Any]:
    try:
        parameters = json.loads(given.get("parameters", "{}"))
    except json.JSONDecodeError:
        parameters = None
    if not isinstance(parameters, dict):
        raise TopologyError(f"parameters of the graph: {given['parameters']!r} must be a JSON object, or left out")
    return parameters


def _required(element: ET.Element, attribute: str) -> str:
    value = element.get(attribute)
    if value is None:
        raise TopologyError(f"<{element.tag} {' '.join(element.attrib.values())}> has no {attribute}")
    return value
