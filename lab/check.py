"""`check ./mine.py`: a user's own topologies and policies meet the same conformance tests that ours pass."""

from dataclasses import is_dataclass
from typing import Any

from controller.conformance import check_file as check_policies
from controller.policy import PolicyError
from lab.errors import LabError
from topologies.conformance import check_topology
from topologies.topology import load_attribute


def check_file(spec: str) -> int:
    """Print a line per topology and policy found in ./FILE.py or ./FILE.py:NAME; 0 when all pass, 1 when one fails."""
    found = {**_topologies(spec), **_policies(spec)}
    if not found:
        raise LabError(
            f"{spec}: nothing to check: a topology is a frozen dataclass with build(), a policy a function (fabric, down)"
        )
    for name, findings in found.items():
        print(f"{name}: {'fails' if findings else 'passes'}")
        for finding in findings:
            print(f"  {finding}")
    return 1 if any(found.values()) else 0


def _topologies(spec: str) -> dict[str, list[str]]:
    if ".py:" in spec:
        cls, _ = load_attribute(spec, "topology or policy")
        classes = {spec.rpartition(":")[2]: cls} if _is_topology(cls) else {}
    else:
        module, _ = load_attribute(f"{spec}:__dict__", "topology or policy")
        classes = {n: v for n, v in module.items() if _is_topology(v) and v.__module__ == module["__name__"]}
    return {f"topology {name}": check_topology(cls()) for name, cls in classes.items()}


def _is_topology(value: Any) -> bool:
    return isinstance(value, type) and is_dataclass(value) and hasattr(value, "build")


def _policies(spec: str) -> dict[str, list[str]]:
    if ".py:" in spec and _is_topology(load_attribute(spec, "topology or policy")[0]):
        return {}
    try:
        return {f"policy {name}": [str(f) for f in findings] for name, findings in check_policies(spec).items()}
    except PolicyError as error:
        raise LabError(str(error)) from None
