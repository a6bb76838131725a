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
from lab.planning import values
from lab.planning.scale import Scale
from topologies import TOPOLOGIES, unknown
from topologies.spread import MAX_ENTROPY, UNITS
from topologies.units import parse_duration_us, parse_flops_s, parse_rate_mbps
from traffic.formats import UNSIZED, split_spec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_FILE = REPOSITORY / "experiments" / "default.toml"

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
    """Hardware units throughout: the scale says what the machine emulates. None = as is said beside it."""

    # The fabric: 'spine-leaf:spines=2,leaves=4'; rate and delay are of every scale-out link, None = the topology's own.
    topology: str = "spine-leaf"
    link_rate_mbps: float | None = None
    delay_us: float | None = None
    jitter_us: float = 0.0
    loss_percent: float = 0.0
    # The wait for a link above which a frame is marked; None = no marks.
    ecn_threshold_us: float | None = None
    mtu: int = 9000
    # That a link's queue holds; None = 256, or two bandwidth-delay products.
    queue_frames: int | None = None

    addressing: str = "l3"
    routing: str = "ecmp"
    # 'tcp:HOST:PORT'; None = ours.
    controller: str | None = None
    # Of optical switches; None = the defaults of lab/planning/circuits.py.
    circuits: str | None = None
    dark: str | None = None
    in_the_dark: str | None = None

    # A collective, or a traffic pattern; algorithm None = the collective's own.
    collective: str = "all_reduce"
    algorithm: str | None = None
    # 'goal:FILE', in a collective's place.
    schedule: str | None = None
    # Connections between two ranks that share the buffer.
    channels: int = 1
    # Of a message, at most, in one slice of the largest size's; None = whole messages.
    slice_bytes: int | None = None
    # The switches of the reducers or servers that the algorithm needs, () = chosen from the fabric; the rate of their links,
    # None = a rank's NIC's, of a reducer times those that it speaks to.
    helpers_at: tuple[str, ...] = ()
    helper_rate_mbps: float | None = None
    placement: str = "contiguous"
    # None = every host.
    ranks: int | None = None
    # nccl-tests' sweep; OWN_SIZE = as the schedule's file has it.
    min_bytes: int = 2**28
    max_bytes: int = 2**30
    step_factor: int = 2
    iterations: int = 3
    warmup_iterations: int = 1
    in_place: bool = False
    # Of traffic patterns; of group_shift; of all_to_all_v, None = even.
    flows_per_host: int = 1
    group_size: int | None = None
    group_shift: int = 1
    hot_share: float | None = None

    transport: str = "tcp"
    # None = the transport's own.
    congestion_control: str | None = None
    # Of TCP, full frames under way on a connection; None = two bandwidth-delay products, 0 = what its congestion control lets.
    window_frames: int | None = None
    # What keeps its source port on the wire, over so many ports, a flowlet until a pause.
    spread: str = UNITS[0]
    entropy: int = 64
    flowlet_gap_us: float = 50.0
    # Of RoCEv2: queue pairs of a connection; payload of a packet, None = the largest that fits; of each queue pair, None =
    # its link's rate; None = what full queues take; 'credits' = no more packets under way than the queues hold.
    qps: int = 1
    path_mtu: int | None = None
    reliability: str = RELIABILITIES[0]
    rate_limit_mbps: float | None = None
    ack_timeout_us: float | None = None
    lossless: str | None = None

    # A model, 'llama2-7b:layers=4', whose training steps take the collective's place; 'tp=4,pp=2', None = data parallel alone;
    # the parameters of Training and of Stragglers; jobs side by side; an accelerator's peak rate, H100's for BF16, and the
    # share of it that matrix products reach.
    workload: str | None = None
    split: str | None = None
    training: str = ""
    stragglers: str = ""
    jobs: int = 1
    device_flops_s: float = 989e12
    efficiency: float = 0.5

    # None = chosen to fit the machine and the time limit.
    scale: Scale | None = None
    seed: int = 1
    time_limit_s: float = 60.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the manifest; `scale` as it was asked for."""
        return asdict(self) | {"scale": "auto" if self.scale is None else str(self.scale)}


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
        _setting("fabric", "topology", values.text),
        _setting("fabric", "link_rate", values.quantity(parse_rate_mbps), "link_rate_mbps"),
        _setting("fabric", "delay", values.quantity(parse_duration_us), "delay_us"),
        _setting("fabric", "jitter", values.quantity(parse_duration_us), "jitter_us"),
        _setting("fabric", "loss", values.percent, "loss_percent"),
        _setting("fabric", "ecn_threshold", values.quantity(parse_duration_us), "ecn_threshold_us"),
        _setting("fabric", "mtu", values.parse_mtu),
        _setting("fabric", "queue", values.between(1, MAX_QUEUE_FRAMES), "queue_frames"),
        _setting("routing", "routing", values.text),
        _setting("routing", "addressing", values.choice(ADDRESSING)),
        _setting("routing", "controller", values.controller),
        _setting("circuits", "circuits", values.text),
        _setting("circuits", "dark", values.text),
        _setting("circuits", "in_the_dark", values.choice(IN_THE_DARK)),
        _setting("traffic", "collective", values.text),
        _setting("traffic", "algorithm", values.text),
        _setting("traffic", "schedule", values.schedule_file),
        _setting("traffic", "channels", values.between(1, MAX_CHANNELS)),
        _setting("traffic", "slice_bytes", values.size),
        _setting("traffic", "helpers_at", values.names),
        _setting("traffic", "helper_rate", values.quantity(parse_rate_mbps), "helper_rate_mbps"),
        _setting("traffic", "transport", values.text),
        _setting("traffic", "congestion_control", values.text),
        _setting("traffic", "window", values.between(0, MAX_QUEUE_FRAMES), "window_frames"),
        _setting("traffic", "qps", values.between(1, MAX_QPS)),
        _setting("traffic", "path_mtu", values.path_mtu),
        _setting("traffic", "reliability", values.choice(RELIABILITIES)),
        _setting("traffic", "spread", values.choice(UNITS)),
        _setting("traffic", "entropy", values.between(2, MAX_ENTROPY)),
        _setting("traffic", "flowlet_gap", values.quantity(parse_duration_us), "flowlet_gap_us"),
        _setting("traffic", "rate_limit", values.quantity(parse_rate_mbps), "rate_limit_mbps"),
        _setting("traffic", "ack_timeout", values.quantity(parse_duration_us), "ack_timeout_us"),
        _setting("traffic", "lossless", values.choice(LOSSLESS)),
        _setting("traffic", "placement", values.choice(PLACEMENTS)),
        _setting("traffic", "ranks", values.between(1, _MAX_INT64)),
        _setting("traffic", "min_bytes", values.size),
        _setting("traffic", "max_bytes", values.size),
        _setting("traffic", "step_factor", values.between(2, _MAX_INT64)),
        _setting("traffic", "iterations", values.between(1, _MAX_ITERATIONS)),
        _setting("traffic", "warmup_iterations", values.between(0, _MAX_ITERATIONS)),
        _setting("traffic", "in_place", values.flag),
        _setting("traffic", "flows_per_host", values.between(1, _MAX_FLOWS)),
        _setting("traffic", "group_size", values.between(1, _MAX_INT64)),
        _setting("traffic", "group_shift", values.whole),
        _setting("traffic", "hot_share", values.share),
        _setting("workload", "workload", values.text),
        _setting("workload", "split", values.text),
        _setting("workload", "training", values.text),
        _setting("workload", "stragglers", values.text),
        _setting("workload", "jobs", values.between(1, _MAX_INT64)),
        _setting("workload", "device_flops", values.quantity(parse_flops_s), "device_flops_s"),
        _setting("workload", "efficiency", values.share),
        _setting("run", "scale", values.scale_of),
        _setting("run", "seed", values.between(0, _MAX_INT64)),
        _setting("run", "time_limit", values.seconds, "time_limit_s"),
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
    found = dict(base)
    _refuse_beside_workload(found, found)
    # What stands beside a schedule: in its own file, and on the command line.
    said = {key for key, setting in SETTINGS.items() if "schedule" in found and setting.field in found}
    given: dict[str, Any] = {}
    for key, value in overrides.items():
        if key not in SETTINGS:
            raise LabError(unknown("setting", key, SETTINGS))
        if value is not None:
            setting = SETTINGS[key]
            given[setting.field] = setting.parse((where or {}).get(key, setting.option), value)
            said.add(key)
    found |= given
    _refuse_beside_workload(found, given)
    if found.get("schedule") is not None:
        found |= _beside_schedule(found["schedule"], said)
    return Experiment(**found)


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


def _refuse_beside_workload(found: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """A workload on the command line takes the place of what a file says about a collective; said together, they clash."""
    clashing = [SETTINGS[key] for key in _OF_COLLECTIVES if key in given]
    if found.get("workload") is not None and clashing:
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
    found: dict[str, Any] = {}
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
            found[SETTINGS[key].field] = SETTINGS[key].parse(f"{file}: [{table}] {key}", value)
    return found


def _belongs(key: str, table: str) -> bool:
    return key in SETTINGS and SETTINGS[key].table == table


def _keys(table: str) -> Iterable[str]:
    return (s.key for s in SETTINGS.values() if s.table == table)


def _topology_spec(file: str, name: object, parameters: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that stand in [fabric] beside the topology, joined to its text form."""
    if not parameters:
        return {}
    spec = Experiment.topology if name is None else values.text(f"{file}: [fabric] topology", name)
    cls = TOPOLOGIES.get(spec.partition(":")[0])
    if cls is not None:
        known = [f.name for f in fields(cls)]
        for key in parameters:
            if key not in known:
                raise LabError(f"{file}: {unknown('key in [fabric]', key, [*known, *_keys('fabric')])}")
    given = ",".join(f"{key}={value}" for key, value in parameters.items())
    has_parameters = ":" in spec.partition(".py:")[2] if ".py:" in spec else ":" in spec
    return {"topology": f"{spec}{',' if has_parameters else ':'}{given}"}
