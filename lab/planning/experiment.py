"""An experiment: every setting of a run, from a TOML file and the command line, checked and in one unit each.

Rules of this file: a setting has one name everywhere (TOML key, override, option); what the file says beats the
defaults, what the command line says beats the file; quantities are text with a unit; a value that cannot be meant is
refused in one line that names it, where it stands and what is allowed.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

from controller.circuits.device import InTheDark
from lab.errors import LabError
from lab.paths import REPOSITORY
from lab.planning.scale import Scale, parse_scale
from topologies import TOPOLOGIES, Refused, unknown
from topologies.units import parse_duration_us, parse_flops_s, parse_rate_mbps, parse_size_bytes
from traffic.formats import UNSIZED, split_spec
from traffic.rocev2.opcodes import PATH_MTUS
from traffic.rocev2.spread import UNITS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_FILE = REPOSITORY / "experiments" / "default.toml"

# IPv4's minimum (RFC 791) and what switches of AI fabrics are set to.
MIN_MTU, MAX_MTU = 576, 9216
# What a column of the results holds, and what no run comes to the end of.
_MAX_INT64, _MAX_ITERATIONS = 2**63 - 1, 1_000_000
# Of 9014 bytes: a bfifo counts its limit in 32 bits.
MAX_QUEUE_FRAMES = 400_000
# More than a host has ports for.
_MAX_FLOWS = 2**15
# NCCL's MAXCHANNELS.
MAX_CHANNELS = 64
# Of min_bytes and max_bytes, which nobody can write.
OWN_SIZE = 0
ADDRESSING = ("l3", "l2")
# NCCL makes up to 128 a connection (NCCL_IB_MAX_QPS); published studies go twice as far.
MAX_QPS = 256
# UDP source ports that Linux uses for RoCEv2.
MAX_ENTROPY = 2**14
RELIABILITIES = ("go-back-N", "selective")
LOSSLESS = ("credits",)
PLACEMENTS = ("contiguous", "strided", "random")
IN_THE_DARK = get_args(InTheDark)
# What a schedule of the user's own says itself, or what is not done to one.
_OF_SCHEDULES = (
    "collective", "algorithm", "workload", "channels", "slice_bytes", "helpers_at", "helper_rate", "flows_per_host",
    "group_size", "group_shift", "hot_share",
)  # fmt: skip
# What a workload says itself, or does not have.
_OF_COLLECTIVES = (
    "collective", "channels", "slice_bytes", "min_bytes", "max_bytes", "step_factor", "in_place", "flows_per_host",
    "group_size", "group_shift", "hot_share",
)  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """Hardware units throughout: the scale says what the machine emulates.

    topology: 'spine-leaf:spines=2,leaves=4'; link_rate_mbps, delay_us: of every scale-out link, None = the topology's own;
    ecn_threshold_us: the wait for a link above which a frame is marked, None = no marks; queue_frames: that a link's queue
    holds, None = 32, or two bandwidth-delay products; collective: or a traffic pattern, to which flows_per_host, group_size
    and group_shift belong; hot_share: of all_to_all_v, None = even; algorithm: None = the collective's own; schedule:
    'goal:FILE', in a collective's place; channels: connections between two ranks that share the buffer; slice_bytes: of a
    message, at most, in one slice of the largest size's, None = whole messages; congestion_control: None = the transport's
    own; of RoCEv2: qps, queue pairs of a connection; path_mtu, payload of a packet, None = the largest that fits; spread,
    of what keeps its UDP source port, over `entropy` ports, a flowlet until a pause of flowlet_gap_us; rate_limit_mbps, of
    each queue pair, None = its link's; ack_timeout_us, None = what full queues take; lossless, 'credits' = no more packets
    under way than the queues hold, None = a window;
    controller: None = ours, or 'tcp:HOST:PORT'; circuits, dark, in_the_dark: of optical switches, None = the circuits'
    defaults; helpers_at: the switches of the reducers or parameter servers that the algorithm needs, () = chosen from the
    fabric; helper_rate_mbps: of their links, None = a rank's NIC's, of a reducer times those that it speaks to; ranks: None
    = every host; min_bytes to max_bytes by step_factor: nccl-tests' `size`, OWN_SIZE = as the schedule's file has it;
    scale: None = chosen to fit the machine and time_limit_s.

    workload: a model, 'llama2-7b:layers=4', whose training steps take the collective's place; split: 'tp=4,pp=2', None = data
    parallel alone; training, stragglers: the parameters of Training and Stragglers;
    jobs: so many of them side by side; device_flops_s: an accelerator's peak rate, H100's for BF16 by default; efficiency: the
    share of it that matrix products reach.
    """

    topology: str = "spine-leaf"
    link_rate_mbps: float | None = None
    delay_us: float | None = None
    jitter_us: float = 0.0
    loss_percent: float = 0.0
    ecn_threshold_us: float | None = None
    mtu: int = 9000
    queue_frames: int | None = None
    addressing: str = "l3"
    routing: str = "ecmp"
    controller: str | None = None
    circuits: str | None = None
    dark: str | None = None
    in_the_dark: str | None = None
    collective: str = "all_reduce"
    algorithm: str | None = None
    schedule: str | None = None
    channels: int = 1
    slice_bytes: int | None = None
    helpers_at: tuple[str, ...] = ()
    helper_rate_mbps: float | None = None
    transport: str = "tcp"
    congestion_control: str | None = None
    qps: int = 1
    path_mtu: int | None = None
    reliability: str = RELIABILITIES[0]
    spread: str = UNITS[0]
    entropy: int = 64
    flowlet_gap_us: float = 50.0
    rate_limit_mbps: float | None = None
    ack_timeout_us: float | None = None
    lossless: str | None = None
    placement: str = "contiguous"
    ranks: int | None = None
    min_bytes: int = 2**28
    max_bytes: int = 2**30
    step_factor: int = 2
    iterations: int = 3
    warmup_iterations: int = 1
    in_place: bool = False
    flows_per_host: int = 1
    group_size: int | None = None
    group_shift: int = 1
    hot_share: float | None = None
    workload: str | None = None
    split: str | None = None
    training: str = ""
    stragglers: str = ""
    jobs: int = 1
    device_flops_s: float = 989e12
    efficiency: float = 0.5
    scale: Scale | None = None
    seed: int = 1
    time_limit_s: float = 60.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the manifest; `scale` as it was asked for."""
        return asdict(self) | {"scale": "auto" if self.scale is None else str(self.scale)}


# -- one value: (where it stands, what was written) -> what is meant ------------------------------------------------


def _whole(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise LabError(f"{where} = {value!r} must be a whole number")
    try:
        return int(value)
    except ValueError:
        raise LabError(f"{where} = {value!r} must be a whole number") from None


def whole_number(least: int, most: int) -> Callable[[str, object], int]:
    def parse(where: str, value: object) -> int:
        number = _whole(where, value)
        if number < least:
            raise LabError(f"{where} = {number} is too small: use {least} or more")
        if number > most:
            raise LabError(f"{where} = {number} is too large: use {most} or less")
        return number

    return parse


def parse_mtu(where: str, value: object) -> int:
    mtu = _whole(where, value)
    if not MIN_MTU <= mtu <= MAX_MTU:
        raise LabError(f"{where} = {mtu} is not possible: use {MIN_MTU} to {MAX_MTU}")
    return mtu


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise LabError(f'{where} = {value!r} must be text: write it like "name"')
    return value


def _names(where: str, value: object) -> tuple[str, ...]:
    names = tuple(name.strip() for name in _text(where, value).split(","))
    if not all(names):
        raise LabError(f"{where} = {value!r} must be names with commas between them: write it like leaf1,spine1")
    return names


def _choice(names: tuple[str, ...]) -> Callable[[str, object], str]:
    def parse(where: str, value: object) -> str:
        if value not in names:
            raise LabError(f"{where} = {value!r}: choose from {', '.join(names)}")
        return str(value)

    return parse


def _path_mtu(where: str, value: object) -> int:
    mtu = _whole(where, value)
    if mtu not in PATH_MTUS:
        raise LabError(f"{where} = {mtu}: choose from {', '.join(map(str, PATH_MTUS))}")
    return mtu


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise LabError(f"{where} = {value!r} must be true or false")
    return value


def _quantity(parse: Callable[[str], float]) -> Callable[[str, object], float]:
    """A quantity with a unit, read by topologies.units, whose refusals name the value and an example."""

    def parse_at(where: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise LabError(f'{where} = {value!r} must be a number with a unit, as text: "..."')
        try:
            return parse(str(value))
        except Refused as refusal:
            raise LabError(f"{where}: {refusal}") from None

    return parse_at


def _size(where: str, value: object) -> int:
    n_bytes = int(_quantity(parse_size_bytes)(where, value))
    if n_bytes == 0:
        raise LabError(f"{where} = {value!r}: 0 bytes send nothing; use 4 or more")
    return n_bytes


def seconds(where: str, value: object) -> float:
    seconds = _quantity(parse_duration_us)(where, value) / 1e6
    if seconds < 1:
        raise LabError(f"{where} = {value!r} is too short for any run: use 1s or more")
    return seconds


def _percent(where: str, value: object) -> float:
    try:
        percent = float(str(value).strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise LabError(f"{where} = {value!r} is not a share of packets: write it like 0.1%")
    return percent


def _share(where: str, value: object) -> float:
    try:
        share = float(str(value))
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise LabError(f"{where} = {value!r} is not a share: use one above 0 and up to 1, like 0.5")
    return share


def _scale(where: str, value: object) -> Scale | None:
    try:
        return parse_scale(str(value))
    except Refused as refusal:
        raise LabError(f"{where}: {refusal}") from None


def controller_address(text: str) -> tuple[str, int]:
    """'tcp:127.0.0.1:6653' -> ('127.0.0.1', 6653); IPv6 hosts stand in brackets, as in Open vSwitch."""
    scheme, _, rest = text.partition(":")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        raise LabError(f"controller {text!r} is not tcp:HOST:PORT: write it like tcp:127.0.0.1:6653")
    if not 0 < int(port) < 2**16:
        raise LabError(f"controller {text!r}: port {port} does not exist, use 1 to 65535")
    return host.strip("[]"), int(port)


def _schedule(where: str, value: object) -> str:
    text = _text(where, value)
    split_spec(text)
    return text


def _controller(where: str, value: object) -> str:
    text = _text(where, value)
    controller_address(text)
    return text


# -- the settings ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """table and key: its place in the file; field: of Experiment; parse: (where, value) -> the field's value."""

    table: str
    key: str
    parse: Callable[[str, object], object]
    field: str

    @property
    def option(self) -> str:
        """What the command line calls it."""
        return _NCCL_OPTIONS.get(self.key, "--" + self.key.replace("_", "-"))


_NCCL_OPTIONS = {
    "min_bytes": "-b", "max_bytes": "-e", "step_factor": "-f", "iterations": "-n", "warmup_iterations": "-w",
}  # fmt: skip


def _setting(table: str, key: str, parse: Callable[[str, object], object], field: str | None = None) -> Setting:
    return Setting(table, key, parse, field or key)


# To add a setting: a field of Experiment and a line here.
SETTINGS: dict[str, Setting] = {
    s.key: s
    for s in (
        _setting("fabric", "topology", _text),
        _setting("fabric", "link_rate", _quantity(parse_rate_mbps), "link_rate_mbps"),
        _setting("fabric", "delay", _quantity(parse_duration_us), "delay_us"),
        _setting("fabric", "jitter", _quantity(parse_duration_us), "jitter_us"),
        _setting("fabric", "loss", _percent, "loss_percent"),
        _setting("fabric", "ecn_threshold", _quantity(parse_duration_us), "ecn_threshold_us"),
        _setting("fabric", "mtu", parse_mtu),
        _setting("fabric", "queue", whole_number(1, MAX_QUEUE_FRAMES), "queue_frames"),
        _setting("routing", "routing", _text),
        _setting("routing", "addressing", _choice(ADDRESSING)),
        _setting("routing", "controller", _controller),
        _setting("circuits", "circuits", _text),
        _setting("circuits", "dark", _text),
        _setting("circuits", "in_the_dark", _choice(IN_THE_DARK)),
        _setting("traffic", "collective", _text),
        _setting("traffic", "algorithm", _text),
        _setting("traffic", "schedule", _schedule),
        _setting("traffic", "channels", whole_number(1, MAX_CHANNELS)),
        _setting("traffic", "slice_bytes", _size),
        _setting("traffic", "helpers_at", _names),
        _setting("traffic", "helper_rate", _quantity(parse_rate_mbps), "helper_rate_mbps"),
        _setting("traffic", "transport", _text),
        _setting("traffic", "congestion_control", _text),
        _setting("traffic", "qps", whole_number(1, MAX_QPS)),
        _setting("traffic", "path_mtu", _path_mtu),
        _setting("traffic", "reliability", _choice(RELIABILITIES)),
        _setting("traffic", "spread", _choice(UNITS)),
        _setting("traffic", "entropy", whole_number(2, MAX_ENTROPY)),
        _setting("traffic", "flowlet_gap", _quantity(parse_duration_us), "flowlet_gap_us"),
        _setting("traffic", "rate_limit", _quantity(parse_rate_mbps), "rate_limit_mbps"),
        _setting("traffic", "ack_timeout", _quantity(parse_duration_us), "ack_timeout_us"),
        _setting("traffic", "lossless", _choice(LOSSLESS)),
        _setting("traffic", "placement", _choice(PLACEMENTS)),
        _setting("traffic", "ranks", whole_number(1, _MAX_INT64)),
        _setting("traffic", "min_bytes", _size),
        _setting("traffic", "max_bytes", _size),
        _setting("traffic", "step_factor", whole_number(2, _MAX_INT64)),
        _setting("traffic", "iterations", whole_number(1, _MAX_ITERATIONS)),
        _setting("traffic", "warmup_iterations", whole_number(0, _MAX_ITERATIONS)),
        _setting("traffic", "in_place", _flag),
        _setting("traffic", "flows_per_host", whole_number(1, _MAX_FLOWS)),
        _setting("traffic", "group_size", whole_number(1, _MAX_INT64)),
        _setting("traffic", "group_shift", _whole),
        _setting("traffic", "hot_share", _share),
        _setting("workload", "workload", _text),
        _setting("workload", "split", _text),
        _setting("workload", "training", _text),
        _setting("workload", "stragglers", _text),
        _setting("workload", "jobs", whole_number(1, _MAX_INT64)),
        _setting("workload", "device_flops", _quantity(parse_flops_s), "device_flops_s"),
        _setting("workload", "efficiency", _share),
        _setting("run", "scale", _scale),
        _setting("run", "seed", whole_number(0, _MAX_INT64)),
        _setting("run", "time_limit", seconds, "time_limit_s"),
    )
}
# Those that say nothing of what is sent, how often and how much: all that a program of the user's own leaves to say.
NOT_OF_THE_TRAFFIC = (
    *(s.key for s in SETTINGS.values() if s.table in ("fabric", "routing", "circuits")), "placement", "ranks", "scale", "seed",
)  # fmt: skip
TABLES = tuple(dict.fromkeys(s.table for s in SETTINGS.values()))
assert {s.field for s in SETTINGS.values()} == {f.name for f in fields(Experiment)}


def load(path: Path | str | None = None, overrides: Mapping[str, object] | None = None) -> Experiment:
    """The experiment of a file (None = experiments/default.toml) with what the command line gave laid over it.

    overrides: setting's key -> text or value; None = not given. Raises LabError, one line.
    """
    file = DEFAULT_FILE if path is None else Path(path)
    return from_settings(from_document(read_document(file), str(path or file.name)), overrides or {})


def from_settings(
    base: Mapping[str, Any], overrides: Mapping[str, object], where: Mapping[str, str] | None = None
) -> Experiment:
    """The experiment of a file's fields with settings laid over them. where: what refusals call a setting, else its option."""
    values = dict(base)
    _refuse_beside_workload(values, values)
    # What stands beside a schedule: in its own file, and on the command line.
    said = {key for key, setting in SETTINGS.items() if "schedule" in values and setting.field in values}
    given: dict[str, Any] = {}
    for key, value in overrides.items():
        if key not in SETTINGS:
            raise LabError(unknown("setting", key, SETTINGS))
        if value is not None:
            setting = SETTINGS[key]
            given[setting.field] = setting.parse((where or {}).get(key, setting.option), value)
            said.add(key)
    values |= given
    _refuse_beside_workload(values, given)
    if values.get("schedule") is not None:
        values |= _beside_schedule(values["schedule"], said)
    return Experiment(**values)


def _beside_schedule(spec: str, said: set[str]) -> dict[str, Any]:
    """Fields that a schedule of the user's own changes. What is said beside it must not be what it says; sizes may be."""
    clashing = [SETTINGS[key] for key in _OF_SCHEDULES if key in said]
    if clashing:
        raise LabError(
            f"{clashing[0].key} ({clashing[0].option}) is not for a schedule of your own, whose file says what is sent: leave "
            "one of them out"
        )
    has_own = split_spec(spec)[0] not in UNSIZED
    return {"min_bytes": OWN_SIZE, "max_bytes": OWN_SIZE} if has_own and not said & {"min_bytes", "max_bytes"} else {}


def _refuse_beside_workload(values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """A workload on the command line takes the place of what a file says about a collective; said together, they clash."""
    clashing = [SETTINGS[key] for key in _OF_COLLECTIVES if key in given]
    if values.get("workload") is not None and clashing:
        raise LabError(
            f"{clashing[0].key} ({clashing[0].option}) is not for a workload, whose model and split say what is sent: "
            "leave one of them out"
        )


def read_document(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise LabError(f"experiment file {str(file)!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"experiment file {str(file)!r} is not TOML: {error}") from None


def from_document(document: Mapping[str, Any], file: str) -> dict[str, Any]:
    """A parsed TOML document -> the Experiment fields that it sets; `file` is its name in refusals."""
    values: dict[str, Any] = {}
    for table, content in document.items():
        if table not in TABLES:
            raise LabError(f"{file}: {unknown('table', table, TABLES)}")
        if not isinstance(content, Mapping):
            raise LabError(f"{file}: {table} = {content!r} must be a table: write [{table}] on a line of its own")
        settings = {key: value for key, value in content.items() if _belongs(key, table)}
        extra = {key: value for key, value in content.items() if key not in settings}
        if table == "fabric":
            settings |= _topology_spec(file, settings.get("topology"), extra)
        elif extra:
            raise LabError(f"{file}: {unknown(f'key in [{table}]', next(iter(extra)), _keys(table))}")
        for key, value in settings.items():
            values[SETTINGS[key].field] = SETTINGS[key].parse(f"{file}: [{table}] {key}", value)
    return values


def _belongs(key: str, table: str) -> bool:
    return key in SETTINGS and SETTINGS[key].table == table


def _keys(table: str) -> Iterable[str]:
    return (s.key for s in SETTINGS.values() if s.table == table)


def _topology_spec(file: str, name: object, parameters: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that stand in [fabric] beside the topology, joined to its text form."""
    if not parameters:
        return {}
    spec = Experiment.topology if name is None else _text(f"{file}: [fabric] topology", name)
    cls = TOPOLOGIES.get(spec.partition(":")[0])
    if cls is not None:
        known = [f.name for f in fields(cls)]
        for key in parameters:
            if key not in known:
                raise LabError(f"{file}: {unknown('key in [fabric]', key, [*known, *_keys('fabric')])}")
    given = ",".join(f"{key}={value}" for key, value in parameters.items())
    has_parameters = ":" in spec.partition(".py:")[2] if ".py:" in spec else ":" in spec
    return {"topology": f"{spec}{',' if has_parameters else ':'}{given}"}
