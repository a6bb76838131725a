"""Options of the command line: their spellings, their help, and which command has which."""

import argparse
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from typing import NoReturn

from controller import POLICIES
from controller.circuits.device import DEVICES
from controller.circuits.schedulers import SCHEDULERS
from lab.errors import LabError
from lab.planning.experiment import (
    ADDRESSING,
    IN_THE_DARK,
    LOSSLESS,
    NOT_OF_THE_TRAFFIC,
    PLACEMENTS,
    RELIABILITIES,
    SETTINGS,
    Experiment,
)
from lab.planning.sending import TCP_CONGESTION_CONTROLS
from lab.planning.workload import Stragglers
from topologies import TOPOLOGIES
from topologies.bill import OPTICS
from topologies.shaping import QUEUE_FRAMES
from topologies.sizing import SIZERS
from topologies.spread import UNITS
from traffic import COLLECTIVES, HELPERS, PATTERNS, TRANSPORTS
from traffic.formats import FORMATS, WRITERS
from traffic.rocev2.opcodes import PATH_MTUS
from traffic.workloads.models import MODELS
from traffic.workloads.training import Training

# setting -> (further spellings, placeholder, help); settings themselves are declared in lab/planning/experiment.py
OPTIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "topology": ((), "NAME[:K=V,...]", f"{', '.join(TOPOLOGIES)}, ./FILE.py:CLASS or ./FILE.graphml"),
    "link_rate": ((), "RATE", "of the fastest scale-out links, the others in proportion; in hardware units: 400Gbit"),
    "delay": ((), "TIME", "one way, of every scale-out link that has no longer one"),
    "jitter": ((), "TIME", "by which that delay varies, up and down; frames keep their order"),
    "loss": ((), "PERCENT", "of frames, at random, on every scale-out link in each direction"),
    "ecn_threshold": ((), "TIME", "mark frames (CE) that would wait longer for a scale-out link"),
    "mtu": ((), "BYTES", "of every interface"),
    "queue": (
        (), "FRAMES", f"full ones that the queue of each link holds (default: {QUEUE_FRAMES}, or two bandwidth-delay products)"
    ),
    "routing": ((), "NAME", f"{', '.join(POLICIES)} or ./FILE.py:FUNCTION"),
    "addressing": ((), "MODE", " or ".join(ADDRESSING)),
    "controller": ((), "tcp:HOST:PORT", "a controller of your own, instead of ours"),
    "circuits": ((), "NAME[:K=V,...]", f"optical: {', '.join(SCHEDULERS)}, ./FILE.py:FUNCTION, or a plan: FILE.toml or .csv"),
    "dark": ((), "NAME|TIME", f"how long circuits that change are dark: {', '.join(DEVICES)}, or a time such as 20us+5us~1us"),
    "in_the_dark": ((), "MODE", f"what packets meet meanwhile: {' or '.join(IN_THE_DARK)}"),
    "collective": ((), "NAME", f"{', '.join(COLLECTIVES)}; or a traffic pattern: {', '.join(PATTERNS)}"),
    "algorithm": ((), "NAME[,...]|all", ", ".join(sorted({a for c in COLLECTIVES.values() for a in c}))),
    "schedule": ((), "[FORMAT:]FILE", f"of your own, in a collective's place: {', '.join(FORMATS)}"),
    "channels": ((), "N", "connections between two ranks, each for its part of the buffer, as NCCL's channels"),
    "slice_bytes": ((), "SIZE", "cut messages into slices of this at most, so that a step need not wait for a whole chunk"),
    "helpers_at": ((), "SWITCH,...", f"where the reducers or servers of {' or '.join(HELPERS)} are plugged in"),
    "helper_rate": ((), "RATE", "of the link of each, in hardware units; in proportion to the NICs if left out"),
    "transport": ((), "NAME", ", ".join(TRANSPORTS)),
    "congestion_control": (
        (), "NAME[:K=V,...]", f"of tcp: {', '.join(TCP_CONGESTION_CONTROLS)}; of rocev2: none, dcqcn (constants: of hardware)"
    ),
    "window": (
        (), "FRAMES", "of tcp: full ones under way on a connection (default: two bandwidth-delay products; 0: no limit of ours)"
    ),
    "qps": ((), "N", "of rocev2: queue pairs of a connection, among which each message is divided"),
    "path_mtu": ((), "BYTES", f"of rocev2: payload of a packet: {', '.join(map(str, PATH_MTUS))} (default: the largest)"),
    "reliability": ((), "NAME", f"of rocev2: {' or '.join(RELIABILITIES)} repeat"),
    "spread": ((), "UNIT", f"{', '.join(UNITS)}: what keeps its source port, and so its path (tcp: by eBPF at hosts)"),
    "entropy": ((), "N", "of --spread packet and flowlet: over how many source ports"),
    "flowlet_gap": ((), "TIME", "of --spread flowlet: the pause after which the port changes"),
    "rate_limit": ((), "RATE", "of rocev2: at which each queue pair sends at most, in hardware units; what it reached is said"),
    "ack_timeout": ((), "TIME", "of rocev2: until packets without acknowledgement are sent again (default: above full queues)"),
    "lossless": ((), "NAME", f"of rocev2: {', '.join(LOSSLESS)}, end to end, in place of PFC: no more is sent than queues hold"),
    "placement": ((), "NAME", ", ".join(PLACEMENTS)),
    "ranks": ((), "N", "number of ranks (default: every host)"),
    "min_bytes": (("--minbytes",), "SIZE", "smallest size, as in nccl-tests: K, M and G are powers of two"),
    "max_bytes": (("--maxbytes",), "SIZE", "largest size"),
    "step_factor": (("--stepfactor",), "N", "factor between sizes"),
    "iterations": (("--iters",), "N", "timed iterations of each size"),
    "warmup_iterations": (("--warmup_iters",), "N", "untimed iterations before them"),
    "flows_per_host": ((), "N", "of a traffic pattern: connections of each host that sends"),
    "group_size": ((), "N", "of group_shift: ranks in a group"),
    "group_shift": ((), "N", "of group_shift: group i sends to group i + N"),
    "hot_share": ((), "SHARE", "of all_to_all_v: of what a rank sends, to the one half the ranks further; the rest evenly"),
    "workload": ((), "MODEL[:K=V,...]", f"a training step in place of a collective: {', '.join(MODELS)}"),
    "split": ((), "tp=N,pp=N,...", "of the workload over the ranks: tp, cp, dp, pp, ep (default: dp alone)"),
    "training": ((), "K=V,...", f"of the workload: {', '.join(f.name for f in fields(Training))}"),
    "stragglers": ((), "K=V,...", f"of the workload: {', '.join(f.name for f in fields(Stragglers))}"),
    "jobs": ((), "N", "of the workload, side by side"),
    "device_flops": ((), "RATE", "of the workload: an accelerator's peak rate: 989Tflops"),
    "efficiency": ((), "SHARE", "of the workload: how much of it matrix products reach"),
    "scale": ((), "auto|RATE[:SIZE]", "what rates and sizes are divided by; 1 = as written"),
    "seed": ((), "N", "of everything random"),
    "time_limit": ((), "TIME", "what scale = auto aims at; up to eight times as long where messages would have too few frames"),
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """argparse, but a refusal is one line, and an unknown option lists the known ones."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            known = [a.option_strings[-1] for a in self._actions if a.option_strings]
            message = f"unknown option{message.removeprefix('unrecognized arguments')}; known: {' '.join(known)}"
        elif message.endswith("expected one argument"):
            message += "; one that begins with - is written --option=-value"
        raise LabError(message)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse's own, but a line is not broken at the hyphen of a name."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


# -- of each command ---------------------------------------------------------------------------------------------------


def _override_options(parser: argparse.ArgumentParser, keys: Iterable[str]) -> "argparse._ArgumentGroup":
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT.toml", help="default: experiments/default.toml")
    group = parser.add_argument_group("overrides of the experiment")
    for key in keys:
        spellings, placeholder, about = OPTIONS[key]
        group.add_argument(
            SETTINGS[key].option, *spellings, dest=key, metavar=placeholder, help=about.replace("%", "%%")
        )
    return group


def experiment_options(parser: argparse.ArgumentParser) -> None:
    group = _override_options(parser, OPTIONS)
    group.add_argument(
        "--in-place", dest="in_place", action="store_true", default=None, help="measure in place as well"
    )


def run_options(parser: argparse.ArgumentParser) -> None:
    experiment_options(parser)
    parser.add_argument(
        "--pcap",
        metavar="HOST[,A->B...]",
        help="capture at these hosts and links: <interface>.pcapng in the results folder",
    )
    parser.add_argument("--out", metavar="DIR", help="results folder (default: results/<date>-<topology>-<collective>)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of the table")
    parser.add_argument("--publish", metavar="PORT", type=int, help="show the lab's REST API on this host's loopback")


def inspect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE.pcapng", help="of --pcap, or any; several points are put together"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def describe_options(parser: argparse.ArgumentParser) -> None:
    experiment_options(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, with the graph that `python -m controller` reads")
    parser.add_argument("--svg", metavar="FILE", help="write a drawing")
    parser.add_argument("--graphml", metavar="FILE", help="write the graph, for --topology to read and for networkx")
    parser.add_argument("--infragraph", metavar="FILE", help="the same for InfraGraph, as .yaml or .json")
    parser.add_argument(
        "--optics", metavar="NAME", default=OPTICS[0], help=f"at the ends of fibre: {', '.join(OPTICS)}"
    )
    parser.add_argument(
        "--prices", metavar="FILE.toml", help="dollars, watts and failures a year of parts, of your own"
    )
    group = parser.add_argument_group("the smallest instances of several fabrics, side by side")
    group.add_argument("--compare", nargs="+", metavar="NAME", help=", ".join(SIZERS))
    group.add_argument("--accelerators", type=int, metavar="N", help="at least so many; needed by --compare")
    group.add_argument("--radix", type=int, metavar="K", help="ports of every packet switch; needed by --compare")
    group.add_argument(
        "--hb-domain", type=int, metavar="N", help="accelerators of a server, one on each rail (default: 8)"
    )
    group.add_argument("--miniature", type=int, metavar="N", help="also each one's smaller sibling, to emulate")


def cli_options(parser: argparse.ArgumentParser) -> None:
    experiment_options(parser)
    parser.add_argument("--publish", metavar="PORT", type=int, help="show the lab's REST API on this host's loopback")


def exec_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [EXPERIMENT.toml] [options] -- PROGRAM [ARGUMENT ...]"
    parser.epilog = _EXEC_HELP
    _override_options(parser, NOT_OF_THE_TRAFFIC)
    parser.add_argument(
        "--mpi", action="store_true", help="PROGRAM is mpirun or mpiexec: it runs once and starts the ranks"
    )
    parser.add_argument("--timeout", metavar="TIME", help="end all ranks after this long, with status 124")
    parser.add_argument(
        "--out", metavar="DIR", help="results folder (default: results/<date>-<topology>-exec-<program>)"
    )
    parser.add_argument("--publish", metavar="PORT", type=int, help="show the lab's REST API on this host's loopback")
    # Taken off the command line before it is parsed: what stands behind `--` is not ours to read.
    parser.set_defaults(program=())


_EXEC_HELP = """\
Each rank is a process of PROGRAM in the network namespace of its host, in your current directory and as root, without standard
input. It finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, GLOO_SOCKET_IFNAME and
NCCL_SOCKET_IFNAME in its environment, and every host by name. Its lines are shown behind its rank. Its bytes are its own: only
rates are scaled. The exit status is the worst of the ranks'; 1 also when the fabric was not as asked (verdict invalid).
"""


def predict_options(parser: argparse.ArgumentParser) -> None:
    experiment_options(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def export_options(parser: argparse.ArgumentParser) -> None:
    experiment_options(parser)
    parser.add_argument("--format", metavar="NAME", required=True, help=", ".join(WRITERS))
    parser.add_argument("--file", metavar="FILE", help="default: the terminal")


def sweep_options(parser: argparse.ArgumentParser) -> None:
    experiment_options(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="where the cells' results are kept (default: results/sweep-<FILE's name>)"
    )
    parser.add_argument(
        "--predict", action="store_true", help="what the model expects of every cell; runs none, needs no root"
    )
    parser.add_argument("--parallel", metavar="N", default="1", help="cells at a time: they share this machine's CPUs")
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="scheduler of a Dask cluster, whose workers run the cells, as root"
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def lab_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lab", nargs="?", help="its id, from `ps` (not needed when one lab runs)")


def shell_options(parser: argparse.ArgumentParser) -> None:
    lab_option(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command to run instead of a shell")


def doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--again", action="store_true", help="measure the switching budget again")
    parser.add_argument("--mtu", type=int, default=Experiment.mtu, help="frame size of the measurement")


def check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", help="./FILE.py or ./FILE.py:NAME: a topology, policy or scheduler of your own; or a lab's answers.toml"
    )


def compare_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "a", help="a results folder, or nccl-tests output (text, JSON, with NCCL_DEBUG's lines or without)"
    )
    parser.add_argument("others", nargs="*", metavar="b", help="others, each compared with the first")
    parser.add_argument("--svg", metavar="FILE", help="draw the curves over each other")
    group = parser.add_argument_group("beside what a fabric should give, for the ranks and sizes of the first")
    group.add_argument(
        "--fabric", metavar="NAME|FILE.toml", help="a topology as --topology takes it, or an experiment file"
    )
    group.add_argument("--link-rate", metavar="RATE", help="of its links, if not its own")
    group.add_argument("--routing", metavar="NAME", help="if not its own: ecmp")
    group.add_argument("--algorithm", metavar="NAME", help="that ran, where the output does not say")
    group.add_argument("--ranks", metavar="N", help="where the output does not say")


def report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a results folder")


def bmwg_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("procedures", nargs="*", metavar="NAME", help="of --list, or all")
    parser.add_argument("--list", action="store_true", help="show them with the time that they take, and those not run")
    parser.add_argument(
        "--out", metavar="DIR", help="results and report (default: results/bmwg); what is valid there stays"
    )


def no_options(parser: argparse.ArgumentParser) -> None:
    pass
