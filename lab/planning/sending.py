"""How an experiment's transport sends: its settings checked, in hardware units, and as emulated. Pure.

A time of the transport is stretched by the time dilation, a rate divided by rate_scale, a number of bytes by size_scale.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from lab.errors import LabError
from lab.planning.experiment import Experiment
from lab.planning.scale import Scale
from topologies import Refused, unknown
from topologies.errors import TopologyError
from topologies.shaping import Shape
from topologies.spray import source_ports as tcp_source_ports
from topologies.spread import BY_FLOW, Spread
from topologies.tcp_timeout import KERNEL_MS, full_queues_ms
from topologies.units import parse_duration_us, parse_rate_mbps, parse_size_bytes
from traffic import TRANSPORTS
from traffic.errors import TrafficError
from traffic.framing import ROCEV2_BYTES, Framing, largest_path_mtu
from traffic.rocev2.dcqcn import DcqcnParameters
from traffic.rocev2.opcodes import PATH_MTUS
from traffic.rocev2.reliability import MAX_TIMEOUT_CODE, Reliability, timeout_ns
from traffic.rocev2.spread import source_ports as rocev2_source_ports

ROCEV2, TCP, UDP = "rocev2", "tcp", "udp"
SELECTIVE = "selective"
DCQCN, NONE = "dcqcn", "none"
TCP_CONGESTION_CONTROLS = ("cubic", "reno", "dctcp", "bbr")
_CONGESTION_CONTROLS = {TCP: TCP_CONGESTION_CONTROLS, ROCEV2: (NONE, DCQCN), UDP: (NONE,)}
_NEED_MARKS = (DCQCN, "dctcp")
# Settings that only RoCEv2 has, and those that belong to one value of another.
_OF_ROCEV2 = ("qps", "path_mtu", "reliability", "rate_limit_mbps", "ack_timeout_us", "lossless")
_OF_SPREAD = ("spread", "entropy", "flowlet_gap_us")
# On a busy machine this process answers late: of what the kernel's TCP waits at the least.
_SPARE = 4
_DEFAULTS = {f.name: f.default for f in fields(Experiment)}
# To add a constant of DCQCN: how it is written, and what it is as DcqcnParameters counts it.
_DCQCN_KEYS: dict[str, tuple[str, Callable[[str], float]]] = {
    "gain": ("gain", float),
    "alpha_timer": ("alpha_timer_ns", lambda text: round(parse_duration_us(text) * 1e3)),
    "rate_timer": ("rate_timer_ns", lambda text: round(parse_duration_us(text) * 1e3)),
    "byte_counter": ("byte_counter", lambda text: int(parse_size_bytes(text))),
    "fast_recovery_steps": ("fast_recovery_steps", int),
    "additive_increase": ("additive_increase_mbps", parse_rate_mbps),
    "hyper_increase": ("hyper_increase_mbps", parse_rate_mbps),
    "min_rate": ("min_rate_mbps", parse_rate_mbps),
    "cnp_interval": ("cnp_interval_ns", lambda text: round(parse_duration_us(text) * 1e3)),
}


def require_possible(e: Experiment, line_rate_mbps: float) -> None:
    """Refuses an unknown transport, what it cannot do, and a setting that it would ignore. line_rate_mbps: of hardware."""
    if e.transport not in TRANSPORTS:
        raise LabError(unknown("transport", e.transport, TRANSPORTS))
    if e.transport != TCP and e.window_frames:
        raise LabError(f"--window is not for {e.transport}: use it with --transport {TCP}")
    if e.transport != ROCEV2:
        for name in _OF_ROCEV2:
            if getattr(e, name) != _DEFAULTS[name]:
                raise LabError(f"{_option(name)} is not for {e.transport}: use it with --transport {ROCEV2}")
    else:
        _require_fit(e)
        if e.ack_timeout_us == 0:
            raise LabError(
                "--ack-timeout 0 would send every packet again before it can be acknowledged: use 1us or more"
            )
    _require_spread(e)
    name, constants = _congestion_control(e)
    if name == DCQCN:
        _dcqcn(e, constants, line_rate_mbps)
        if e.rate_limit_mbps is not None:
            raise LabError(
                "--rate-limit is not for --congestion-control dcqcn, which chooses the rate: leave one of them out"
            )
    if name in _NEED_MARKS and e.ecn_threshold_us is None:
        raise LabError(
            f"--congestion-control {name} waits for marks, and no link marks: add --ecn-threshold, such as 50us"
        )


def options(e: Experiment, scale: Scale, line_rate_mbps: float, shapes: Iterable[Shape]) -> dict[str, Any]:
    """The transport's keyword arguments, as emulated. line_rate_mbps: of hardware; shapes: of the emulated links."""
    name, constants = _congestion_control(e)
    if e.transport == TCP:
        return {"congestion_control": name}
    if e.transport == UDP:
        return {"patience_ns": _silence_ns(shapes)}
    return {
        "reliability": replace(reliability(e), timeout_ns=ack_timeout_ns(e, scale, shapes)),
        "dcqcn": _emulated(_dcqcn(e, constants, line_rate_mbps), scale) if name == DCQCN else None,
        "spread": _spread(e, scale),
        "rate_mbps": None if e.rate_limit_mbps is None else e.rate_limit_mbps / scale.rate_scale,
        **plan_options(e),
    }


def plan_options(e: Experiment) -> dict[str, Any]:
    """What of them decides which flows there are."""
    return {"qps": e.qps, "seed": e.seed} if e.transport == ROCEV2 else {}


def spread_by_hosts(e: Experiment, scale: Scale) -> Spread:
    """What the hosts do to TCP's packets, which has no source ports to choose from. RoCEv2 chooses its own."""
    return _spread(e, scale) if e.transport == TCP else BY_FLOW


def _spread(e: Experiment, scale: Scale) -> Spread:
    gap_ns = max(1, round(e.flowlet_gap_us * 1e3 * scale.time_dilation))
    return Spread(e.spread, e.entropy, gap_ns)  # type: ignore[arg-type]


def source_ports(e: Experiment, first: int) -> list[int]:
    """Of a flow that begins with this one, all that its packets leave by in turn. Flowlets have no turns that are known."""
    of = rocev2_source_ports if e.transport == ROCEV2 else tcp_source_ports
    return of(first, e.entropy if e.spread == "packet" else 1)


def spreads_acknowledgements(e: Experiment) -> bool:
    """RoCEv2's leave by their queue pair's port."""
    return e.transport == TCP


def framing(e: Experiment) -> Framing:
    """What the transport's messages are on the wire."""
    of = TRANSPORTS[e.transport].framing
    made: Framing = of(e.mtu, e.path_mtu, reliability(e).ack_every) if e.transport == ROCEV2 else of(e.mtu)
    return made


def of_a_program(e: Experiment) -> Experiment:
    """What a file says of RoCEv2 is not for a program of the user's own, which speaks TCP as most do."""
    if e.transport == TCP:
        return e
    own: dict[str, Any] = {name: _DEFAULTS[name] for name in ("congestion_control", *_OF_SPREAD)}
    return replace(e, transport=TCP, **own)


def tcp_congestion_control(e: Experiment) -> str:
    """Of TCP connections, whoever makes them."""
    return _congestion_control(e)[0] if e.transport == TCP else TCP_CONGESTION_CONTROLS[0]


def reliability(e: Experiment) -> Reliability:
    """With spread packets a gap is no loss until half a window has passed it."""
    selective = e.reliability == SELECTIVE
    r = Reliability(mtu_bytes=e.path_mtu or largest_path_mtu(e.mtu) or PATH_MTUS[0], selective=selective)
    return replace(r, reorder=r.window // 2) if selective and e.spread != "flow" else r


def ack_timeout_ns(e: Experiment, scale: Scale, shapes: Iterable[Shape]) -> int:
    """As emulated. Unasked it is the shortest that a NIC can be set to which, stretched, is above the wait in full queues: with a
    shorter one every packet in a full queue would be sent twice."""
    if e.ack_timeout_us is not None:
        return max(1, round(e.ack_timeout_us * 1e3 * scale.time_dilation))
    codes = (round(timeout_ns(code) * scale.time_dilation) for code in range(MAX_TIMEOUT_CODE + 1))
    least_ns = _silence_ns(shapes)
    return next((ns for ns in codes if ns >= least_ns), least_ns)


def _silence_ns(shapes: Iterable[Shape]) -> int:
    """After which nothing more is to be expected."""
    return max(_SPARE * KERNEL_MS, full_queues_ms(shapes)) * 10**6


def resent_for(e: Experiment, lost: int, timeouts: int) -> int:
    """Segments that so many losses and retransmission timeouts can explain: who goes back sends all of a window again."""
    if e.transport != ROCEV2:
        return lost
    r = reliability(e)
    return lost * (1 if r.selective else r.window) + timeouts * r.window


# -- checks ---------------------------------------------------------------------------------------------------------


def _option(field: str) -> str:
    return "--" + field.removesuffix("_us").removesuffix("_mbps").replace("_", "-")


def _require_fit(e: Experiment) -> None:
    largest = largest_path_mtu(e.mtu)
    if largest is None:
        raise LabError(f"--mtu {e.mtu} carries no RoCEv2: use {PATH_MTUS[0] + ROCEV2_BYTES} or more")
    if e.path_mtu is not None and e.path_mtu > largest:
        raise LabError(
            f"--path-mtu {e.path_mtu} makes packets of {e.path_mtu + ROCEV2_BYTES} bytes, more than --mtu {e.mtu}: "
            f"use --path-mtu {largest}, or --mtu {e.path_mtu + ROCEV2_BYTES} or more"
        )


def _require_spread(e: Experiment) -> None:
    for name in _OF_SPREAD:
        if e.transport == UDP and getattr(e, name) != _DEFAULTS[name]:
            raise LabError(f"{_option(name)} is not for {e.transport}: use it with --transport {TCP} or {ROCEV2}")
    if e.spread == "flow" and e.entropy != _DEFAULTS["entropy"]:
        raise LabError(
            f"--entropy {e.entropy} is not for --spread flow, which has one source port: use --spread packet"
        )
    if e.spread != "flowlet" and e.flowlet_gap_us != _DEFAULTS["flowlet_gap_us"]:
        raise LabError(f"--flowlet-gap is not for --spread {e.spread}: use it with --spread flowlet")
    try:
        Spread(e.spread, e.entropy)  # type: ignore[arg-type]
    except TopologyError as error:
        raise LabError(f"--entropy: {error}") from None


def _congestion_control(e: Experiment) -> tuple[str, Mapping[str, str]]:
    """(name, constants as written) of 'dcqcn:gain=0.004,rate_timer=300us'; unasked the transport's first."""
    known = _CONGESTION_CONTROLS[e.transport]
    name, _, rest = (known[0] if e.congestion_control is None else e.congestion_control).partition(":")
    if name not in known:
        raise LabError(f"--congestion-control {name!r} is not for {e.transport}: choose from {', '.join(known)}")
    constants: dict[str, str] = {}
    for part in rest.split(",") if rest else ():
        key, _, value = part.partition("=")
        if name != DCQCN:
            raise LabError(f"--congestion-control {name} has no constants: write it without {rest!r}")
        if key not in _DCQCN_KEYS:
            raise LabError(f"--congestion-control: {unknown('constant of DCQCN', key, _DCQCN_KEYS)}")
        constants[key] = value
    return name, constants


# -- DCQCN ----------------------------------------------------------------------------------------------------------


def _dcqcn(e: Experiment, constants: Mapping[str, str], line_rate_mbps: float) -> DcqcnParameters:
    """Of hardware."""
    values: dict[str, Any] = {}
    for key, text in constants.items():
        field, parse = _DCQCN_KEYS[key]
        try:
            values[field] = parse(text)
        except ValueError as error:
            reason = error if isinstance(error, Refused) else f"{text!r} is not a number"
            raise LabError(f"--congestion-control dcqcn: {key}: {reason}") from None
    try:
        return DcqcnParameters.at_line_rate(line_rate_mbps, **values)
    except TrafficError as error:
        raise LabError(
            f"--congestion-control {e.congestion_control}: {error}; constants: {', '.join(_DCQCN_KEYS)}"
        ) from None


def _emulated(p: DcqcnParameters, scale: Scale) -> DcqcnParameters:
    rates = {name: getattr(p, name) / scale.rate_scale for name in _fields_ending(p, "_mbps")}
    times = {name: max(1, round(getattr(p, name) * scale.time_dilation)) for name in _fields_ending(p, "_ns")}
    return replace(p, **rates, **times, byte_counter=max(1, round(p.byte_counter / scale.size_scale)))


def _fields_ending(p: DcqcnParameters, unit: str) -> list[str]:
    return [f.name for f in fields(p) if f.name.endswith(unit)]
