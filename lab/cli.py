"""The command line: what a user types, in; an exit status, out. Heavy imports happen in the command that needs them.

Exit status: 0 done, every row ok or degraded; 1 done, but a row is invalid; 2 refused before anything was created;
3 failed and cleaned up; 130/143 interrupted and cleaned up.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lab import options, terminal
from lab.errors import LabError
from lab.machine import probes
from lab.options import OPTIONS
from lab.planning import values
from lab.planning.experiment import Experiment, load
from lab.rows import Output
from topologies import Refused, unknown
from topologies.errors import EmulationError, one_line

PROGRAM = "run_topo.py"
Arguments = argparse.Namespace


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
        parser = options.Parser(
            prog=f"{PROGRAM} {name}" if argv[:1] == [name] else PROGRAM,
            description=about if name != "run" or argv[:1] == ["run"] else _overview(),
            formatter_class=options.HelpFormatter,
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


def _experiment(arguments: Arguments) -> Experiment:
    file = arguments.experiment
    if file and not Path(file).exists() and file.isidentifier():
        raise LabError(f"{unknown('command', file, COMMANDS)}; an experiment file ends in .toml")
    return load(arguments.experiment, {key: getattr(arguments, key, None) for key in (*OPTIONS, "in_place")})


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
    grid = load_grid(file, {key: getattr(arguments, key, None) for key in (*OPTIONS, "in_place")})
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
    "run": (_run, options.run_options, "run an experiment (what happens without a command); needs root"),
    "describe": (_describe, options.describe_options, "what a fabric consists of: counts, bisection, cost, drawing"),
    "predict": (_predict, options.predict_options, "what the model expects of an experiment, at any size"),
    "sweep": (_sweep, options.sweep_options, "every combination of a file's [grid], in one table; needs root"),
    "bmwg": (
        _bmwg,
        options.bmwg_options,
        "procedures of the IETF BMWG drafts on AI fabrics, and their report; needs root",
    ),
    "export": (_export, options.export_options, "the schedule that would run, for others' programs"),
    "cli": (_cli, options.cli_options, "bring the fabric and its controller up, give the Mininet prompt; needs root"),
    "exec": (_exec, options.exec_options, "run a program of your own once per rank, over the fabric; needs root"),
    "doctor": (_doctor, options.doctor_options, "what this machine can do, what is missing and how to get it"),
    "ps": (_ps, options.no_options, "list running labs; needs root"),
    "shell": (_shell, options.shell_options, "enter a running lab; needs root"),
    "stop": (_stop, options.lab_option, "end a running lab; needs root"),
    "check": (
        _check,
        options.check_options,
        "test a topology or policy of your own as ours are tested; a lab's answers",
    ),
    "inspect": (_inspect, options.inspect_options, "captures of --pcap as a table of flows"),
    "report": (_report, options.report_options, "make a results folder's report.html again"),
    "compare": (
        _compare,
        options.compare_options,
        "results side by side, nccl-tests output among them, and beside a prediction",
    ),
}
