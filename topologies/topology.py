"""What a topology is: a frozen parameter object with `build()`, and how its text form is read.

spine-leaf:spines=4,leaves=8          a registered name with parameters
./mine.py:MyTopology:width=3          a class in a user's own file
multi-dc:site=torus(dims=4x4;hosts_per_router=2),sites=3     a topology as the value of a parameter: ( for :, ; for ,
"""

import importlib.util
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from topologies.errors import Refused, TopologyError, unknown
from topologies.fabric import Fabric


@dataclass(frozen=True)
class ClosedForm:
    """Counts by formula, which the built graph must equal. `bisection_links` counts links of the host rate across the
    worst even split; `path_diversity` equal-cost paths between the farthest hosts. These are of the network; what is inside
    the servers is counted apart. None: there is no such figure, or no formula for it."""

    hosts: int
    switches: int
    links: int
    diameter: int | None
    bisection_links: float | None
    path_diversity: int | None
    scale_up_switches: int = 0
    scale_up_links: int = 0


@runtime_checkable
class Topology(Protocol):
    """Frozen dataclass of parameters, in the field's standard symbols; every one has a default."""

    def build(self) -> Fabric: ...

    def closed_form(self) -> ClosedForm: ...


def require_at_least(parameters: Any, **minimum: int) -> None:
    """Refuse a parameter below its minimum, or one that is not a whole number."""
    for key, least in minimum.items():
        value = getattr(parameters, key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise TopologyError(f"{key}={value!r} must be a whole number")
        if value < least:
            raise TopologyError(f"{key}={value} is too small: use {key} >= {least}")


def load_attribute(spec: str, what: str) -> tuple[Any, str]:
    """'./mine.py:NAME[:rest]' -> (the object, rest)."""
    path, _, rest = spec.partition(".py:")
    name, _, rest = rest.partition(":")
    file = Path(path + ".py").expanduser()
    if not name or not file.is_file():
        raise Refused(f"{what} {spec!r}: write it as ./FILE.py:NAME, where the file exists and defines NAME")
    module_spec = importlib.util.spec_from_file_location(f"user_{file.stem}", file)
    assert module_spec and module_spec.loader  # a .py file always has a loader
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise Refused(f"{what} {spec!r}: {file} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        return getattr(module, name), rest
    except AttributeError:
        names = [n for n in vars(module) if not n.startswith("_")]
        raise Refused(f"{what} {spec!r}: {unknown('name', name, names)}") from None


def parse_parameters(cls: type[Any], text: str, what: str) -> dict[str, Any]:
    """'spines=4,leaves=8' -> {'spines': 4, 'leaves': 8}, typed by the dataclass's fields."""
    known = {f.name: f for f in fields(cls)}
    parameters: dict[str, Any] = {}
    for item in filter(None, (s.strip() for s in text.split(","))):
        key, equals, value = item.partition("=")
        if not equals:
            raise TopologyError(f"{what}: {item!r} is not key=value; keys: {', '.join(known)}")
        if key not in known:
            raise TopologyError(f"{what}: {unknown('parameter', key, known)}")
        if key in parameters:
            raise TopologyError(f"{what}: {key} is given twice")
        parameters[key] = _typed(known[key].type, key, value, what)
    return parameters


def nested(text: str) -> str:
    """'torus(dims=4x4;hosts_per_router=2)' -> 'torus:dims=4x4,hosts_per_router=2', the text form by itself."""
    name, bracket, parameters = text.partition("(")
    if not bracket:
        return name
    if not parameters.endswith(")") or "(" in parameters or ")" in parameters[:-1]:
        raise TopologyError(f"{text!r} is not a topology within one: write it as NAME or NAME(key=value;key=value)")
    return f"{name}:{parameters[:-1].replace(';', ',')}"


def _typed(type_: Any, key: str, value: str, what: str) -> Any:
    name = type_ if isinstance(type_, str) else getattr(type_, "__name__", str(type_))
    try:
        if name.startswith("int"):
            return int(value)
        if name.startswith("float"):
            return float(value)
    except ValueError:
        raise TopologyError(f"{what}: {key}={value!r} must be a {'whole ' if name == 'int' else ''}number") from None
    return value


def parse_topology(spec: str, registry: dict[str, type[Any]]) -> Topology:
    """The topology that a text form names; refuses with the known names and parameters."""
    if ".py:" in spec:
        cls, text = load_attribute(spec, "topology")
        if not (is_dataclass(cls) and isinstance(cls, type) and hasattr(cls, "build")):
            raise TopologyError(f"topology {spec!r}: must be a frozen dataclass with a build() method")
    else:
        name, _, text = spec.partition(":")
        if name not in registry:
            raise TopologyError(unknown("topology", name, registry))
        cls = registry[name]
    topology: Topology = cls(**parse_parameters(cls, text, f"topology {spec!r}"))
    return topology
