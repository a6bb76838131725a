"""Flows that somebody has announced: who sends to whom, and how much; and their form in JSON."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from controller.flow import SCTP, TCP, UDP, Flow
from topologies.errors import Refused

# A switch has at most one rule per announced flow: this bounds its table.
MAX_DEMANDS = 4096
HAVE_PORTS = frozenset({TCP, UDP, SCTP})

_KEYS = ("src_ip", "dst_ip", "proto", "src_port", "dst_port", "rate_mbps")


@dataclass(frozen=True, slots=True)
class Demand:
    """rate_mbps: what the flow would send if nothing held it up."""

    flow: Flow
    rate_mbps: float


def to_plain(demand: Demand) -> dict[str, Any]:
    """What `from_plain` reads."""
    return {**asdict(demand.flow), "rate_mbps": demand.rate_mbps}


def from_plain(data: Any) -> tuple[Demand, ...]:
    """A JSON list of flows -> demands. Raises Refused, naming the first one that is wrong."""
    if not isinstance(data, list):
        raise Refused(f"flows must be a list of objects with {', '.join(_KEYS)}")
    return tuple(_one(item) for item in data)


def merged(known: Iterable[Demand], new: Iterable[Demand]) -> tuple[Demand, ...]:
    """The new take the place of known ones with the same 5-tuple. Refused where they are too many."""
    by_flow = {demand.flow: demand for demand in (*known, *new)}
    if len(by_flow) > MAX_DEMANDS:
        raise Refused(f"{len(by_flow)} flows: at most {MAX_DEMANDS} can be announced, each needs rules of its own")
    return tuple(by_flow.values())


def without(known: Iterable[Demand], gone: Iterable[Demand]) -> tuple[Demand, ...]:
    """Those of the known whose 5-tuple is not among the others'."""
    flows = {demand.flow for demand in gone}
    return tuple(demand for demand in known if demand.flow not in flows)


def _one(item: Any) -> Demand:
    try:
        src_ip, dst_ip = (str(IPv4Address(item[key])) for key in _KEYS[:2])
        proto, src_port, dst_port = (int(item.get(key, 0)) for key in _KEYS[2:5])
        rate_mbps = float(item["rate_mbps"])
    except (AddressValueError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Refused(f"flow {item!r}: {type(error).__name__} {error}: it needs {', '.join(_KEYS)}") from None
    if not (0 < proto < 256 and 0 <= src_port < 65536 and 0 <= dst_port < 65536):
        raise Refused(f"flow {item!r}: proto must be 1..255, ports 0..65535")
    if not (rate_mbps > 0 and math.isfinite(rate_mbps)):
        raise Refused(f"flow {item!r}: rate_mbps must be a positive number")
    ports = (src_port, dst_port) if proto in HAVE_PORTS else (0, 0)
    return Demand(Flow(src_ip, dst_ip, proto, *ports), rate_mbps)
