"""What depends on a fabric alone is computed once for each: a Fabric never changes."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from topologies.fabric import Fabric

_T = TypeVar("_T")


def per_fabric(compute: Callable[[Fabric], _T]) -> Callable[[Fabric], _T]:
    """Keeps the result with the fabric, as `functools.cached_property` would if it were the fabric's own. All callers get
    the same object: they must not change it."""
    key = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def kept(fabric: Fabric) -> _T:
        if key not in fabric.__dict__:
            fabric.__dict__[key] = compute(fabric)
        result: _T = fabric.__dict__[key]
        return result

    return kept
