"""InfraGraph (https://infragraph.dev), the infrastructure model of Keysight, Chakra and ASTRA-sim, by its own package.

A file of ours has an instance for each node, named after it, whose component port[n-1] (switch) or nic[n] (host) is port n;
what InfraGraph has no place for stands as a JSON object in `description`: parameters of the infrastructure, role, dpid,
prefix and group of an instance, kind of a link.

In a file of others a server is a device with an xpu or a nic, and each of its ends of a link to a switch is a host, the hosts
of a server one group; any other device is a switch, its role the instance's name. Hosts are named h1, h2, ..., switches
sw1, sw2, ..., because InfraGraph's names are longer than an interface's may be. What is inside a device is not read.
"""

import importlib
import json
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from topologies.draft import complete, draft_link, draft_node
from topologies.errors import TopologyError, unknown
from topologies.fabric import HOST, Fabric, Link, Node

INSTALL = ".venv/bin/pip install -c constraints.txt -e '.[infragraph]'"
_SERVER_PARTS = {"xpu", "nic"}
_RATE_MBPS = {"gigabits_per_second": 1e3, "gigabytes_per_second": 8e3}
_DELAY_US = {"ms": 1e3, "us": 1.0, "ns": 1e-3}


def to_infragraph(fabric: Fabric, *, as_json: bool = False) -> str:
    """The fabric as an InfraGraph infrastructure, in YAML or JSON."""
    description = json.dumps({"parameters": dict(fabric.parameters)})
    made = _package("infragraph").Infrastructure(name=fabric.name, description=description)
    device = {node.name: (node.is_host, _n_ports(fabric, node)) for node in fabric.nodes}
    for kind in dict.fromkeys(device.values()):
        _add_device(made, *kind)
    for node in fabric.nodes:
        made.instances.add(name=node.name, device=_device_name(*device[node.name]), count=1, description=_about(node))
    links: dict[tuple[str, float, float], str] = {}
    for link in fabric.links:
        what = link.kind, link.rate_mbps, link.delay_us
        if what not in links:
            links[what] = f"{link.kind}-{len(links) + 1}"
            _add_link(made, links[what], link)
        edge = made.edges.add(scheme="one2one", link=links[what])
        for end, port in ((edge.ep1, link.a), (edge.ep2, link.b)):
            end.instance = f"{port.node}[0]"
            end.component = f"nic[{port.number}]" if device[port.node][0] else f"port[{port.number - 1}]"
    text: str = made.serialize("json" if as_json else "yaml")
    return text


def from_infragraph(document: str | bytes) -> Fabric:
    """The fabric of an InfraGraph infrastructure of ours or of others; refuses in one line what is none."""
    given = _read(document if isinstance(document, str) else document.decode(errors="replace"))
    nodes, port_of = _nodes(given)
    attributes_of = {link["name"]: _link_attributes(link) for link in given.infrastructure.get("links", [])}
    links = []
    for one, other, link in given.cables:
        (a, a_port), (b, b_port) = port_of[one], port_of[other]
        draft = draft_link(a, b, attributes_of.get(link, {}))
        links.append(replace(draft, a_port=a_port, b_port=b_port))
    parameters = _described(given.infrastructure).get("parameters", {})
    return complete(given.infrastructure.get("name", "infragraph"), parameters, nodes, links)


def _package(module: str) -> Any:
    """Optional, and slow to import."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise TopologyError(f"InfraGraph needs its own package: run `{INSTALL}`") from None


# -- writing ----------------------------------------------------------------------------------------------------------


def _n_ports(fabric: Fabric, node: Node) -> int:
    """Up to the highest in use; a host counts its own from 0."""
    return max((port.number for port in fabric.ports_of(node.name)), default=0) + node.is_host


def _device_name(is_host: bool, n_ports: int) -> str:
    return f"{HOST if is_host else 'switch'}-{n_ports}"


def _add_device(infrastructure: Any, is_host: bool, n_ports: int) -> None:
    """The smallest that InfraGraph accepts: a part that computes or switches, joined to all of the ports."""
    device = infrastructure.devices.add(name=_device_name(is_host, n_ports))
    for name, choice, n in (
        (("xpu", "xpu", 1), ("nic", "nic", n_ports)) if is_host else (("asic", "switch", 1), ("port", "port", n_ports))
    ):
        device.components.add(name=name, count=n).choice = choice
    inside = device.links.add(name="inside")
    edge = device.edges.add(scheme="many2many", link=inside.name)
    edge.ep1.component, edge.ep2.component = (component.name for component in device.components)


def _add_link(infrastructure: Any, name: str, link: Link) -> None:
    made = infrastructure.links.add(name=name, description=json.dumps({"kind": link.kind}))
    made.physical.bandwidth.gigabits_per_second = link.rate_mbps / 1e3
    made.physical.latency.us = link.delay_us


def _about(node: Node) -> str:
    values = {"role": node.role, "dpid": node.dpid, "prefix": node.prefix, "group": node.group}
    return json.dumps({key: value for key, value in values.items() if value is not None})


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """What the package made of a file. An end of a cable is called as there, instance.index.component.index; cables: (end, end,
    name of the link) in the file's order; servers: instance.index."""

    infrastructure: Mapping[str, Any]
    cables: tuple[tuple[str, str, str], ...]
    servers: frozenset[str]


def _read(text: str) -> _Given:
    service = _package("infragraph.infragraph_service").InfraGraphService()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unused ports are no fault
            service.set_graph(text)
    except Exception as error:
        raise TopologyError(f"not an InfraGraph infrastructure: {' '.join(str(error).split())}") from None
    infrastructure = service.infrastructure.serialize("dict")
    graph = service.get_networkx_graph()
    _check_edges(infrastructure, graph)
    order = {(_end(e["ep1"]), _end(e["ep2"])): i for i, e in enumerate(infrastructure.get("edges", []))}
    cables = []
    for a, b, link in graph.edges(data="link"):
        if _device(a) != _device(b):
            cables.append((b, a, link) if (b, a) in order else (a, b, link))
    # A cable out of a slice stands nowhere by itself: those come last, as the package has them.
    cables.sort(key=lambda cable: order.get(cable[:2], len(order)))
    servers = frozenset(_device(part) for part, type_ in graph.nodes(data="type") if type_ in _SERVER_PARTS)
    return _Given(infrastructure, tuple(cables), servers)


def _check_edges(infrastructure: Mapping[str, Any], graph: Any) -> None:
    """What the package passes over: it drops an edge to an unknown component, and makes up an index out of range."""
    links = [link["name"] for link in infrastructure.get("links", [])]
    parts = {device["name"]: [part["name"] for part in device["components"]] for device in infrastructure["devices"]}
    device_of = {instance["name"]: instance["device"] for instance in infrastructure["instances"]}
    for edge in infrastructure.get("edges", []):
        what = f"edge {_end(edge['ep1'])}-{_end(edge['ep2'])}"
        if edge["link"] not in links:
            raise TopologyError(f"{what}: {unknown('link', edge['link'], links)}")
        for end in (edge["ep1"], edge["ep2"]):
            known = parts[device_of[_bare(end["instance"])]]
            if _bare(end["component"]) not in known:
                raise TopologyError(f"{what}: {unknown('component', _bare(end['component']), known)}")
    for end, type_ in graph.nodes(data="type"):
        if type_ is None:
            raise TopologyError(f"an edge ends at {end}, but there are not so many")


def _bare(reference: str) -> str:
    """'port[2].lane[0]' -> 'port'"""
    return reference.partition(".")[0].partition("[")[0]


def _end(endpoint: Mapping[str, str]) -> str:
    """instance leaf[0], component port[2] -> 'leaf.0.port.2'"""
    return f"{endpoint['instance']}.{endpoint['component']}".replace("[", ".").replace("]", "")


def _device(end: str) -> str:
    """'leaf.0.port.2' -> 'leaf.0'"""
    return ".".join(end.split(".")[:2])


def _nodes(given: _Given) -> tuple[list[Node], dict[str, tuple[str, int | None]]]:
    """The nodes in the file's order; and of each end of a cable its node, and its port where the file is ours."""
    ends_at: dict[str, list[str]] = defaultdict(list)
    for one, other, _ in given.cables:
        ends_at[_device(one)].append(one)
        ends_at[_device(other)].append(other)
    host, switch, server = count(1), count(1), count()
    nodes: list[Node] = []
    port_of: dict[str, tuple[str, int | None]] = {}
    for instance in given.infrastructure.get("instances", []):
        about = _described(instance)
        for device in (f"{instance['name']}.{i}" for i in range(instance["count"])):
            ends = ends_at[device]
            if "role" in about:
                nodes.append(draft_node(instance["name"], about))
                first = 0 if nodes[-1].is_host else 1
                port_of |= {end: (nodes[-1].name, first + int(end.rpartition(".")[2])) for end in ends}
            elif device in given.servers:
                names = {end: f"h{next(host)}" for end in ends}
                group = next(server)
                nodes += [Node(name, HOST, group=group) for name in names.values()]
                port_of |= {end: (name, None) for end, name in names.items()}
            else:
                nodes.append(Node(f"sw{next(switch)}", instance["name"]))
                port_of |= dict.fromkeys(ends, (nodes[-1].name, None))
    return nodes, port_of


def _link_attributes(link: Mapping[str, Any]) -> dict[str, Any]:
    """As draft_link takes them."""
    physical = link.get("physical", {})
    attributes = {key: value for key, value in _described(link).items() if key == "kind"}
    for attribute, measure, units in (("rate_mbps", "bandwidth", _RATE_MBPS), ("delay_us", "latency", _DELAY_US)):
        for unit, value in physical.get(measure, {}).items():
            if unit == "choice":
                continue
            if unit not in units:
                raise TopologyError(f"link {link['name']}: {measure} in {unit}: use one of {', '.join(units)}")
            # To the bit/s: 0.1001 Gbit/s is not quite 100.1 Mbit/s in floating point.
            attributes[attribute] = round(value * units[unit], 6)
    return attributes


def _described(of: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object in its description; others write prose there."""
    try:
        about = json.loads(of.get("description", ""))
    except json.JSONDecodeError:
        return {}
    return about if isinstance(about, dict) else {}
