"""What a topology is: a frozen parameter object with `build()`, and how its text form is read.

spine-leaf:spines=4,leaves=8          a registered name with parameters
./mine.py:MyTopology:width=3          a class in a user's own file
multi-dc:site=torus(dims=4x4;hosts_per_router=2),sites=3     a topology as the value of a parameter: ( for :, ; for ,
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

from topologies import user_code
from topologies.errors import TopologyError, unknown
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
            return _finite(value)
    except ValueError:
        raise TopologyError(f"{what}: {key}={value!r} must be a {'whole ' if name == 'int' else ''}number") from None
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def parse_topology(spec: str, registry: dict[str, type[Any]]) -> Topology:
    """The topology that a text form names; refuses with the known names and parameters."""
    if user_code.is_file(spec):
        cls, text = user_code.load_attribute(spec, "topology")
        if not is_topology(cls):
            raise TopologyError(f"topology {spec!r}: must be a frozen dataclass with a build() method")
    else:
        name, _, text = spec.partition(":")
        if name not in registry:
            raise TopologyError(unknown("topology", name, registry))
        cls = registry[name]
    what = f"topology {spec!r}"
    return make(cls, what, parse_parameters(cls, text, what))


def is_topology(value: Any) -> bool:
    """Whether it is a class that can be used as one."""
    return isinstance(value, type) and is_dataclass(value) and hasattr(value, "build")


def make(cls: type[Any], what: str, parameters: Mapping[str, Any]) -> Topology:
    """The topology with these parameters, the others at their defaults. `what` is named in refusals."""
    required = (f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING)
    if missing := [name for name in required if name not in parameters]:
        raise TopologyError(f"{what}: {', '.join(missing)} must be given, or have a default in the class")
    made: Topology = user_code.call(what, lambda: cls(**parameters))
    return made


def build(topology: Topology) -> Fabric:
    """The topology's fabric. Refuses a user's class that fails, or builds something else."""
    name = type(topology).__name__
    fabric: object = user_code.call(f"topology {name}: build()", topology.build)
    if not isinstance(fabric, Fabric):
        raise TopologyError(f"topology {name}: build() must return a Fabric, not {type(fabric).__name__}")
    return fabric
