"""The command line: what a user types, in; an exit status, out. Heavy imports happen in the command that needs them.

Exit status: 0 done, every row ok or degraded; 1 done, but a row is invalid; 2 refused before anything was created;
3 failed and cleaned up; 130/143 interrupted and cleaned up.
"""

import argparse
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NoReturn

from controller import POLICIES
from controller.circuits.device import DEVICES
from controller.circuits.schedulers import SCHEDULERS
from lab import terminal
from lab.errors import LabError
from lab.machine import probes
from lab.planning import values
from lab.planning.experiment import (
    ADDRESSING,
    IN_THE_DARK,
    LOSSLESS,
    NOT_OF_THE_TRAFFIC,
    PLACEMENTS,
    RELIABILITIES,
    SETTINGS,
    Experiment,
    load,
)
from lab.planning.sending import TCP_CONGESTION_CONTROLS
from lab.planning.workload import Stragglers
from lab.rows import Output
from topologies import TOPOLOGIES, Refused, unknown
from topologies.bill import OPTICS
from topologies.errors import EmulationError, one_line
from topologies.sizing import SIZERS
from topologies.spread import UNITS
from traffic import COLLECTIVES, HELPERS, PATTERNS, TRANSPORTS
from traffic.formats import FORMATS, WRITERS
from traffic.rocev2.opcodes import PATH_MTUS
from traffic.workloads.models import MODELS
from traffic.workloads.training import Training

PROGRAM = "run_topo.py"
Arguments = argparse.Namespace

# setting -> (further spellings, placeholder, help); settings themselves are declared in lab/planning/experiment.py
_OPTIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "topology": ((), "NAME[:K=V,...]", f"{', '.join(TOPOLOGIES)}, ./FILE.py:CLASS or ./FILE.graphml"),
    "link_rate": ((), "RATE", "of the fastest scale-out links, the others in proportion; in hardware units: 400Gbit"),
    "delay": ((), "TIME", "one way, of every scale-out link that has no longer one"),
    "jitter": ((), "TIME", "by which that delay varies, up and down; frames keep their order"),
    "loss": ((), "PERCENT", "of frames, at random, on every scale-out link in each direction"),
    "ecn_threshold": ((), "TIME", "mark frames (CE) that would wait longer for a scale-out link"),
    "mtu": ((), "BYTES", "of every interface"),
    "queue": ((), "FRAMES", "full ones that the queue of each link holds (default: 32, or two bandwidth-delay products)"),
    "routing": ((), "NAME", f"{', '.join(POLICIES)} or ./FILE.py:FUNCTION"),
    "addressing": ((), "MODE", " or ".join(ADDRESSING)),
    "controller": ((), "tcp:HOST:PORT", "a controller of your own on this host, instead of ours"),
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


class _Parser(argparse.ArgumentParser):
    """argparse, but a refusal is one line, and an unknown option lists the known ones."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            known = [a.option_strings[-1] for a in self._actions if a.option_strings]
            message = f"unknown option{message.removeprefix('unrecognized arguments')}; known: {' '.join(known)}"
        elif message.endswith("expected one argument"):
            message += "; one that begins with - is written --option=-value"
        raise LabError(message)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse's own, but a line is not broken at the hyphen of a name."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def main(argv: Sequence[str]) -> int:
    """Run one command line; every refusal becomes one line on stderr and status 2."""
    try:
        # Until here an interrupt ended us at once; from here it is told from a failure.
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return _obey(argv)
    except Refused as refusal:
        terminal.warn(f"{PROGRAM}: {refusal}")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read has enough (`| head`).
        terminal.discard(sys.stdout)
        return 0
    except (OSError, EmulationError) as error:
        terminal.discard(sys.stdout)
        terminal.warn(f"{PROGRAM}: failed: {one_line(str(error))}")
        return 3


def _obey(argv: Sequence[str]) -> int:
    probes.complete_path()
    try:
        name, rest = (argv[0], argv[1:]) if argv and argv[0] in COMMANDS else ("run", argv)
        command, add_options, about = COMMANDS[name]
        parser = _Parser(
            prog=f"{PROGRAM} {name}" if argv[:1] == [name] else PROGRAM,
            description=about if name != "run" or argv[:1] == ["run"] else _overview(),
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )
        add_options(parser)
        program: Sequence[str] = ()
        if name == "exec" and "--" in rest:
            at = list(rest).index("--")
            rest, program = rest[:at], rest[at + 1 :]
        arguments = parser.parse_args(rest)
        if program:
            arguments.program = program
        return command(arguments)
    finally:
        # Here, where it may still fail.
        sys.stdout.flush()


def _overview() -> str:
    commands = "\n".join(f"  {name:<9} {about}" for name, (_, _, about) in COMMANDS.items())
    return (
        f"An AI-cluster fabric in a box: build it, run a collective over it, judge the result.\n\ncommands:\n{commands}"
    )


# -- options ----------------------------------------------------------------------------------------------------------


def _override_options(parser: argparse.ArgumentParser, keys: Iterable[str]) -> "argparse._ArgumentGroup":
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT.toml", help="default: experiments/default.toml")
    group = parser.add_argument_group("overrides of the experiment")
    for key in keys:
        spellings, placeholder, about = _OPTIONS[key]
        group.add_argument(
            SETTINGS[key].option, *spellings, dest=key, metavar=placeholder, help=about.replace("%", "%%")
        )
    return group


def _experiment_options(parser: argparse.ArgumentParser) -> None:
    group = _override_options(parser, _OPTIONS)
    group.add_argument(
        "--in-place", dest="in_place", action="store_true", default=None, help="measure in place as well"
    )


def _run_options(parser: argparse.ArgumentParser) -> None:
    _experiment_options(parser)
    parser.add_argument(
        "--pcap",
        metavar="HOST[,A->B...]",
        help="capture at these hosts and links: <interface>.pcapng in the results folder",
    )
    parser.add_argument("--out", metavar="DIR", help="results folder (default: results/<date>-<topology>-<collective>)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of the table")
    parser.add_argument("--publish", metavar="PORT", type=int, help="show the lab's REST API on this host's loopback")


def _inspect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE.pcapng", help="of --pcap, or any; several points are put together"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def _describe_options(parser: argparse.ArgumentParser) -> None:
    _experiment_options(parser)
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


def _cli_options(parser: argparse.ArgumentParser) -> None:
    _experiment_options(parser)
    parser.add_argument("--publish", metavar="PORT", type=int, help="show the lab's REST API on this host's loopback")


def _exec_options(parser: argparse.ArgumentParser) -> None:
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


def _predict_options(parser: argparse.ArgumentParser) -> None:
    _experiment_options(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def _export_options(parser: argparse.ArgumentParser) -> None:
    _experiment_options(parser)
    parser.add_argument("--format", metavar="NAME", required=True, help=", ".join(WRITERS))
    parser.add_argument("--file", metavar="FILE", help="default: the terminal")


def _sweep_options(parser: argparse.ArgumentParser) -> None:
    _experiment_options(parser)
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


def _lab_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lab", nargs="?", help="its id, from `ps` (not needed when one lab runs)")


def _shell_options(parser: argparse.ArgumentParser) -> None:
    _lab_option(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command to run instead of a shell")


def _doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--again", action="store_true", help="measure the switching budget again")
    parser.add_argument("--mtu", type=int, default=Experiment.mtu, help="frame size of the measurement")


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", help="./FILE.py or ./FILE.py:NAME: a topology, policy or scheduler of your own; or a lab's answers.toml"
    )


def _compare_options(parser: argparse.ArgumentParser) -> None:
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


def _report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a results folder")


def _bmwg_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("procedures", nargs="*", metavar="NAME", help="of --list, or all")
    parser.add_argument("--list", action="store_true", help="show them with the time that they take, and those not run")
    parser.add_argument(
        "--out", metavar="DIR", help="results and report (default: results/bmwg); what is valid there stays"
    )


def _no_options(parser: argparse.ArgumentParser) -> None:
    pass


def _experiment(arguments: Arguments) -> Experiment:
    file = arguments.experiment
    if file and not Path(file).exists() and file.isidentifier():
        raise LabError(f"{unknown('command', file, COMMANDS)}; an experiment file ends in .toml")
    return load(arguments.experiment, {key: getattr(arguments, key, None) for key in (*_OPTIONS, "in_place")})


# -- commands ---------------------------------------------------------------------------------------------------------


def _run(arguments: Arguments) -> int:
    from lab.commands import algorithms, launch

    asked = _experiment(arguments)
    if algorithms.are_several(asked):
        if arguments.pcap is not None:
            raise LabError("--pcap is for one algorithm: name one with --algorithm")
        return algorithms.run(asked, out=arguments.out, as_json=arguments.json, publish=arguments.publish)
    output: Output = "json" if arguments.json else "table"
    return launch.run(asked, out=arguments.out, output=output, publish=arguments.publish, pcap=arguments.pcap)


def _cli(arguments: Arguments) -> int:
    from lab.commands import launch

    return launch.cli(_experiment(arguments), publish=arguments.publish)


def _exec(arguments: Arguments) -> int:
    from lab.commands import launch
    from lab.measuring.job import Job

    if not arguments.program:
        raise LabError("no program to run: write it behind --, as in `exec --topology spine-leaf -- python3 train.py`")
    timeout_s = None if arguments.timeout is None else values.seconds("--timeout", arguments.timeout)
    job = Job(tuple(arguments.program), arguments.mpi, timeout_s)
    return launch.execute(_experiment(arguments), job, out=arguments.out, publish=arguments.publish)


def _describe(arguments: Arguments) -> int:
    from lab.commands import describing

    show = describing.one if arguments.compare is None else describing.several
    show(_experiment(arguments), arguments)
    return 0


def _predict(arguments: Arguments) -> int:
    from lab.commands import algorithms, predicting

    asked = _experiment(arguments)
    show = algorithms.predict if algorithms.are_several(asked) else predicting.show
    show(asked, as_json=arguments.json)
    return 0


def _export(arguments: Arguments) -> int:
    from lab.commands import exporting

    exporting.write(_experiment(arguments), arguments.format, arguments.file)
    return 0


def _sweep(arguments: Arguments) -> int:
    from lab.commands import sweep
    from lab.planning.grid import load_grid

    file = arguments.experiment
    if not file:
        raise LabError("sweep needs a file with a [grid], such as experiments/sweep-routing.toml")
    grid = load_grid(file, {key: getattr(arguments, key, None) for key in (*_OPTIONS, "in_place")})
    status = 0
    if arguments.predict:
        table = sweep.predicted(grid)
    else:
        if not arguments.dask:
            probes.require_root()
        folder = Path(arguments.out or Path("results") / f"sweep-{Path(file).stem}").expanduser().resolve()
        at_a_time = values.between(1, 64)("--parallel", arguments.parallel)
        table, status = sweep.run(grid, folder, at_a_time=at_a_time, dask=arguments.dask)
        terminal.warn(f"results: {folder}")
    if arguments.json:
        terminal.show(sweep.as_json(table))
    else:
        sweep.show(table, grid)
    return status


def _doctor(arguments: Arguments) -> int:
    from lab.machine import doctor

    return doctor.examine(mtu=values.parse_mtu("--mtu", arguments.mtu), again=arguments.again)


def _ps(arguments: Arguments) -> int:
    from lab.machine import labs

    probes.require_root()
    return labs.show()


def _shell(arguments: Arguments) -> int:
    from lab.machine import labs

    probes.require_root()
    lab, command = arguments.lab, arguments.command
    if lab is not None and not lab.isdecimal():
        # `shell -- ovs-vsctl show`: the id was left out.
        lab, command = None, [lab, *command]
    return labs.enter(lab, command[1:] if command[:1] == ["--"] else command)


def _stop(arguments: Arguments) -> int:
    from lab.machine import labs

    probes.require_root()
    return labs.stop(arguments.lab)


def _check(arguments: Arguments) -> int:
    from lab.commands import check

    return check.check_file(arguments.file)


def _inspect(arguments: Arguments) -> int:
    from lab.commands import inspecting

    inspecting.show(arguments.files, as_json=arguments.json)
    return 0


def _compare(arguments: Arguments) -> int:
    from lab.commands import compare

    return compare.run(arguments)


def _report(arguments: Arguments) -> int:
    from lab.reporting import results

    print(results.write_report(Path(arguments.folder)))
    return 0


def _bmwg(arguments: Arguments) -> int:
    from lab.commands import bmwg

    if arguments.list or not arguments.procedures:
        return bmwg.show()
    return bmwg.run(arguments.procedures, out=arguments.out)


Command = tuple[Callable[[Arguments], int], Callable[[argparse.ArgumentParser], None], str]
COMMANDS: dict[str, Command] = {
    "run": (_run, _run_options, "run an experiment (what happens without a command); needs root"),
    "describe": (_describe, _describe_options, "what a fabric consists of: counts, bisection, cost, drawing"),
    "predict": (_predict, _predict_options, "what the model expects of an experiment, at any size"),
    "sweep": (_sweep, _sweep_options, "every combination of a file's [grid], in one table; needs root"),
    "bmwg": (_bmwg, _bmwg_options, "procedures of the IETF BMWG drafts on AI fabrics, and their report; needs root"),
    "export": (_export, _export_options, "the schedule that would run, for others' programs"),
    "cli": (_cli, _cli_options, "bring the fabric and its controller up, give the Mininet prompt; needs root"),
    "exec": (_exec, _exec_options, "run a program of your own once per rank, over the fabric; needs root"),
    "doctor": (_doctor, _doctor_options, "what this machine can do, what is missing and how to get it"),
    "ps": (_ps, _no_options, "list running labs; needs root"),
    "shell": (_shell, _shell_options, "enter a running lab; needs root"),
    "stop": (_stop, _lab_option, "end a running lab; needs root"),
    "check": (_check, _check_options, "test a topology or policy of your own as ours are tested; a lab's answers"),
    "inspect": (_inspect, _inspect_options, "captures of --pcap as a table of flows"),
    "report": (_report, _report_options, "make a results folder's report.html again"),
    "compare": (
        _compare,
        _compare_options,
        "results side by side, nccl-tests output among them, and beside a prediction",
    ),
}
