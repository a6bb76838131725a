"""What the command line refuses: status 2, one line on stderr that helps, nothing on stdout, nothing made."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller import POLICIES
from lab import cli
from lab.machine import hop_budget, probes, sandbox
from lab.planning.experiment import PLACEMENTS, SETTINGS
from topologies import TOPOLOGIES
from traffic import COLLECTIVES, TRANSPORTS

ROOT = Path(__file__).resolve().parents[2]
# As small as a run can be: should a refusal be missing, the test below ends at the sandbox.
SMALL = (
    "--topology",
    "spine-leaf:spines=1,leaves=2,hosts_per_leaf=1",
    "--scale",
    "1",
    "--link-rate",
    "20Mbit",
    "-b",
    "64K",
    "-e",
    "64K",
)


class SandboxMade(Exception):
    """A run got as far as its sandbox."""


@pytest.fixture(autouse=True)
def _no_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(*_: object, **__: object) -> int:
        raise SandboxMade

    monkeypatch.setattr(sandbox, "run", made)
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a refusal, after the program's name."""
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("run_topo.py: ")
    assert said.err.endswith("\n") and said.err.count("\n") == 1, said.err
    assert list(Path().iterdir()) == []
    return said.err.removeprefix("run_topo.py: ").rstrip()


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("--topology", TOPOLOGIES),
        ("--routing", POLICIES),
        ("--collective", COLLECTIVES),
        ("--algorithm", COLLECTIVES["all_reduce"]),
        ("--transport", TRANSPORTS),
        ("--placement", PLACEMENTS),
        ("--addressing", ("l3", "l2")),
    ],
)
def test_unknown_name_lists_the_known_ones(capsys: pytest.CaptureFixture[str], option: str, known: list[str]) -> None:
    line = refused(capsys, option, "nosuch")
    assert "'nosuch'" in line
    assert all(name in line for name in known)


def test_unknown_option_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "--spines", "4")
    assert "--spines" in line
    assert all(s.option in line for s in SETTINGS.values() if s.option.startswith("--"))


def test_unknown_command_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "dsecribe")
    assert all(name in line for name in cli.COMMANDS)


def test_unknown_key_of_a_topology_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "--topology", "spine-leaf:spinez=2")
    assert all(key in line for key in ("'spinez'", "spines", "leaves", "hosts_per_leaf", "links_per_pair"))


REFUSED = {
    "unconnected leaves": (["--topology", "spine-leaf:spines=0,leaves=2"], ["spines=0", "leaves=2"]),
    "a count that is no number": (["--topology", "spine-leaf:spines=many"], ["spines", "many"]),
    "a negative count": (["--topology", "spine-leaf:leaves=-1"], ["leaves", "-1"]),
    "a negative rate": (["--link-rate=-5Gbit"], ["--link-rate", "-5Gbit", "400Gbit"]),
    "a negative rate as a word of its own": (["--link-rate", "-5Gbit"], ["--link-rate", "--option=-value"]),
    "a rate without unit": (["--link-rate", "5"], ["--link-rate", "'5'", "400Gbit"]),
    "a rate of nothing": (["--link-rate", "0Gbit"], ["--link-rate", "0Gbit"]),
    "a rate that is not finite": (["--link-rate", "infGbit"], ["--link-rate", "infGbit"]),
    "a duration without unit": (["--delay", "5"], ["--delay", "'5'", "20us"]),
    "size 0": (["-b", "0"], ["-b", "0 bytes"]),
    "a size that is none": (["-b", "big"], ["-b", "big"]),
    "a negative size": (["--minbytes=-4M"], ["-b", "-4M"]),
    "-e below -b": (["-b", "4M", "-e", "2M"], ["-e 2MiB", "-b 4MiB"]),
    "a size too small for every rank": (["-b", "4", "-e", "4", "--scale", "1000"], ["-b 4B", "or more"]),
    "one rank": (["--ranks", "1"], ["1 rank", "2 or more"]),
    "no ranks": (["--ranks", "0"], ["--ranks", "0"]),
    "more ranks than hosts": (["--ranks", "17"], ["17 ranks", "16 hosts"]),
    "a topology with one host": (["--topology", "spine-leaf:spines=1,leaves=1,hosts_per_leaf=1"], ["1 rank"]),
    "no iterations": (["-n", "0"], ["-n", "1 or more"]),
    "negative warm-up": (["-w=-1"], ["-w", "0 or more"]),
    "a step factor of 1": (["-f", "1"], ["-f", "2 or more"]),
    "a frame below IPv4's minimum": (["--mtu", "100"], ["--mtu", "576", "9216"]),
    "a frame beyond jumbo": (["--mtu", "65000"], ["--mtu", "576", "9216"]),
    "all lost": (["--loss", "100%"], ["loss 100%", "use less"]),
    "impossible loss": (["--loss", "200%"], ["--loss", "0.1%"]),
    "jitter without delay": (["--jitter", "1ms"], ["jitter 1000us", "--delay"]),
    "a scale that is none": (["--scale", "big"], ["--scale", "auto", "8000:64"]),
    "a scale that enlarges": (["--scale", "0.5"], ["--scale", "1 or more"]),
    "a scale beyond what a link can be shaped to": (["--scale", "1"], ["400Gbit", "rate_scale 1", "--scale auto"]),
    "a scale below what a link can be shaped to": (["--scale", "1e9:1"], ["400Gbit", "--scale auto"]),
    "flows beyond a host's ports": (["--collective", "incast", "--flows-per-host", "9" * 12], ["32768 or less"]),
    "all algorithms of what is too small for any": (
        ["--collective", "scatter", "--algorithm", "all", "-b", "4", "-e", "4"], ["no algorithm of scatter", "-b 4B"],
    ),
    "blocks of nothing": (["--collective", "all_to_all_v", "--ranks", "2", "-b", "4", "-e", "4"], ["-b 4B", "32B or more"]),
    "no time": (["--time-limit", "0s"], ["--time-limit", "1s or more"]),
    "a controller that is no address": (["--controller", "127.0.0.1"], ["'127.0.0.1'", "tcp:HOST:PORT"]),
    "a controller without a port": (["--controller", "tcp:127.0.0.1"], ["tcp:HOST:PORT"]),
    "a controller's impossible port": (["--controller", "tcp:127.0.0.1:70000"], ["70000", "65535"]),
    "a rate beyond any link": (["--link-rate", "101Tbit"], ["101Tbit", "100Tbit"]),
    "a size beyond any collective": (["-b", "9" * 400], ["-b", "1024TiB"]),
    "a time beyond any": (["--time-limit", "9" * 400 + "s"], ["--time-limit", "1000000s"]),
    "a seed that no column holds": (["--seed", str(2**63)], ["--seed", str(2**63 - 1)]),
    "warm-up without end": (["-w", "9" * 20], ["-w", "1000000 or less"]),
    "iterations without end": (["-n", "1000001"], ["-n", "1000000 or less"]),
    "ranks beyond counting": (["--ranks", "9" * 30], ["--ranks", "or less"]),
    "more links than a fabric has": (
        ["--topology", "spine-leaf:spines=1000,leaves=1000"], ["spine-leaf", "200,000 links"],
    ),
    "more switches than a fabric has": (
        ["--topology", f"spine-leaf:spines={'9' * 20}"], ["spine-leaf", "5,000 switches"],
    ),
    "more routers than addresses": (["--topology", "torus:dims=100000x100000x10000"], ["addresses"]),
    "a rate that is no number": (["--topology", "superpod:hb_rate_gbps=nan"], ["hb_rate_gbps", "nan"]),
    "an infinite rate": (["--topology", "superpod:hb_rate_gbps=inf"], ["hb_rate_gbps", "inf"]),
    "a port that is no number": (["--publish", "x"], ["--publish", "'x'"]),
    "a missing file": (["nosuch.toml"], ["nosuch.toml", "No such file"]),
    "results where a run sees nothing": (["--out", "/run/x"], ["--out /run/x"]),
    "results in a folder that is in use": (["--out", str(ROOT / "lab")], ["--out", "not an empty folder"]),
    "results in a file": (["--out", str(ROOT / "pyproject.toml")], ["--out", "not an empty folder"]),
    "a policy that is no file": (["--routing", "./mine.py:POLICY"], ["./mine.py"]),
    "a topology that is no file": (["--topology", "./mine.py:Mine"], ["./mine.py"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_that_names_it(capsys: pytest.CaptureFixture[str], case: str) -> None:
    arguments, wanted = REFUSED[case]
    line = refused(capsys, *arguments)
    assert [word for word in wanted if word not in line] == [], line


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ("[fabric]\nspinez = 2\n", ["spinez", "spines"]),
        ("[fabrik]\n", ["fabrik", "fabric"]),
        ("[traffic]\nspeed = 1\n", ["speed", "collective"]),
        ("[traffic\n", ["mine.toml", "TOML"]),
        ("[traffic]\nranks = true\n", ["ranks", "whole number"]),
        ("[fabric]\nlink_rate = 400\n", ["link_rate", "400Gbit"]),
    ],
)  # fmt: skip
def test_a_file_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory, toml: str, wanted: list[str]
) -> None:
    file = tmp_path_factory.mktemp("experiments") / "mine.toml"
    file.write_text(toml)
    line = refused(capsys, str(file))
    assert [word for word in wanted if word not in line] == [], line


@pytest.mark.parametrize("command", ["describe", "predict", "cli"])
def test_other_commands_refuse_alike(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert "nosuch" in refused(capsys, command, "--topology", "nosuch")
    assert "known:" in refused(capsys, command, "--nosuch")


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--topo" in refused(capsys, "--topo", "spine-leaf")


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS)])
def test_help_needs_nothing(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([*command, "--help"])
    assert left.value.code == 0
    assert "usage: run_topo.py" in capsys.readouterr().out


def test_help_lists_commands_and_registries(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert all(
        name in text for names in (cli.COMMANDS, TOPOLOGIES, POLICIES, COLLECTIVES, TRANSPORTS) for name in names
    )


@pytest.mark.parametrize(
    ("routing", "why"),
    [
        ("ugal", "moves flows while they run"),
        ("ecmp-group", "leaves the choice of path to a hash that cannot be computed"),
    ],
)
def test_paths_that_nobody_knows_are_not_predicted(routing: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", "--topology", "dragonfly:a=2,p=1,h=2,g=3", "--routing", routing]) == 0
    assert f"no prediction: {routing} {why}" in capsys.readouterr().out


def test_describe_and_predict_print_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["describe", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["hosts"], described["switches"]) == (16, 6)
    assert cli.main(["predict", "--json", "-b", "1G", "-e", "1G"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["predicted_s"] > row["roofline_s"] > 0


def test_without_root_the_exact_command_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["run_topo.py", "my experiment.toml"])
    for command in ([], ["cli"], ["ps"], ["shell"], ["stop"]):
        assert (
            refused(capsys, *command)
            == f"needs root: run it as `sudo {sys.executable} run_topo.py 'my experiment.toml'`"
        )


def test_a_mistake_is_named_before_the_missing_root(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "nosuch" in refused(capsys, "--routing", "nosuch")


@pytest.fixture
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can do everything, whatever this one can."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for check in ("require_tools", "require_capabilities"):
        monkeypatch.setattr(probes, check, lambda: None)


@pytest.mark.usefixtures("_as_root")
def test_a_run_that_can_be_done_reaches_its_sandbox() -> None:
    with pytest.raises(SandboxMade):
        cli.main(SMALL)


@pytest.mark.usefixtures("_as_root")
@pytest.mark.parametrize("qdiscs", [{"htb", "bfifo"}, set(probes.QDISCS)])
def test_delay_is_possible_with_netem_and_without(monkeypatch: pytest.MonkeyPatch, qdiscs: set[str]) -> None:
    monkeypatch.setattr(probes, "usable_qdiscs", lambda: frozenset(qdiscs))
    monkeypatch.setattr(hop_budget, "measured", lambda *_, **__: 100_000.0)
    with pytest.raises(SandboxMade):
        cli.main([*SMALL, "--delay", "10ms"])


@pytest.mark.usefixtures("_as_root")
@pytest.mark.parametrize("options", [["--delay", "125us"], ["--delay", "125us", "--jitter", "1us"]])
def test_a_delay_too_short_for_the_hop_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(probes, "usable_qdiscs", lambda: frozenset({"htb", "bfifo"}))
    line = refused(capsys, *SMALL, *options)
    assert all(word in line for word in ("125 us", "1000 us", "sch_netem"))


@pytest.mark.usefixtures("_as_root")
@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_a_port_that_does_not_exist_cannot_be_published(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert "65535" in refused(capsys, *SMALL, f"--publish={port}")


@pytest.mark.usefixtures("_as_root")
def test_results_that_cannot_be_written_are_refused_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("/proc/x", str(ROOT / "pyproject.toml" / "x")):
        assert folder in refused(capsys, *SMALL, "--out", folder)


@pytest.mark.usefixtures("_as_root")
def test_more_memory_than_there_is_is_refused_with_both_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks of 1 GiB: 2 buffers, 2 messages of a half, one buffer to compare with and a quarter for its mask."""
    monkeypatch.setattr(probes, "available_memory_bytes", lambda: 4 * 2**30)
    line = refused(capsys, *SMALL, "-b", "1G", "-e", "1G")
    assert all(text in line for text in ("2 ranks x 1GiB", "4.3 GiB", "4.0 GiB", "--scale RATE:SIZE"))


@pytest.mark.usefixtures("_as_root")
def test_a_fabric_too_large_to_build_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "--topology", "spine-leaf:leaves=300,hosts_per_leaf=15", "--ranks", "2", "--scale", "8000")
    assert all(text in line for text in ("4500 hosts", "4096", "describe"))


@pytest.mark.usefixtures("_as_root")
def test_too_few_open_files_are_refused_with_both_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (200, 200))
    line = refused(capsys, *SMALL)
    assert "268 open files" in line and "200" in line and "ulimit -n 268" in line


def test_missing_tools_are_named_at_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda tool: None if tool in ("ovs-vsctl", "mnexec") else f"/usr/bin/{tool}")
    line = refused(capsys, *SMALL)
    assert all(word in line for word in ("ovs-vsctl", "openvswitch-switch", "mnexec", "mininet", "setup.sh"))


NO_FILE = {
    "in no folder": ("nowhere/x.svg", "No such file or directory"),
    "a folder": (".", "Is a directory"),
    "below a file": (str(ROOT / "pyproject.toml" / "x.svg"), "Not a directory"),
}


@pytest.mark.parametrize("case", NO_FILE)
def test_a_drawing_that_cannot_be_written_is_refused(capsys: pytest.CaptureFixture[str], case: str) -> None:
    file, reason = NO_FILE[case]
    line = refused(capsys, "describe", "--svg", file)
    assert repr(file) in line and reason in line


@pytest.mark.parametrize("mtu", ["0", "-1", "99999"])
def test_doctor_measures_with_possible_frames_only(capsys: pytest.CaptureFixture[str], mtu: str) -> None:
    assert "576 to 9216" in refused(capsys, "doctor", f"--mtu={mtu}")


def test_results_in_a_folder_without_a_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--out ''" in refused(capsys, *SMALL, "--out", "")


def test_results_without_a_size_in_common_are_not_compared(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("results")
    for name, n in (("a", 2**20), ("b", 2**21)):
        half = {"time": 1.0, "alg_bw": 1.0, "bus_bw": 1.0}
        (folder / name).write_text(json.dumps({"results": [{"size": n, "out_of_place": half}]}))
    assert cli.main(["compare", str(folder / "a"), str(folder / "b")]) == 1
    assert "no size was measured validly in both" in capsys.readouterr().out
    assert cli.main(["compare", str(folder / "a"), str(folder / "a")]) == 0


def shell(command: str) -> "subprocess.CompletedProcess[bytes]":
    """A command line; `run_topo` in it is ours."""
    line = command.replace("run_topo", f"{sys.executable} {ROOT}/run_topo.py")
    return subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("command", ["describe", "describe --json", "--help"])
def test_a_full_disk_is_one_line(command: str) -> None:
    done = shell(f"run_topo {command} > /dev/full")
    assert (done.returncode, done.stderr) == (3, b"run_topo.py: failed: [Errno 28] No space left on device\n")


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("describe <&-", 0),
        ("describe >&-", 0),
        ("describe 2>&-", 0),
        ("describe <&- >&- 2>&-", 0),
        ("--nosuch 2>&-", 2),
        ("--nosuch 2>/dev/full", 2),
    ],
)
def test_a_standard_descriptor_may_be_missing(command: str, status: int) -> None:
    done = shell(f"run_topo {command}")
    assert (done.returncode, done.stderr) == (status, b"")


def test_an_interrupt_before_the_first_line_ends_it_without_a_traceback() -> None:
    """One that came while the interpreter was being replaced waits until our file runs."""
    early = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {2}); os.kill(os.getpid(), 2); "
    command = [sys.executable, str(ROOT / "run_topo.py"), "describe"]
    done = subprocess.run(
        [sys.executable, "-c", f"{early} os.execv(sys.executable, {command})"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-2, b"", b"")


def test_an_interrupt_of_a_command_is_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "complete_path", lambda: os.kill(os.getpid(), 2))
    assert cli.main(["describe"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} run_topo.py describe --json | head -c 1",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"{", b"")


@pytest.mark.parametrize("arguments", [["--help"], ["describe"], ["report", "--help"]])
def test_only_who_writes_a_report_waits_for_the_plotting_library(arguments: list[str]) -> None:
    code = (
        f"import sys\nfrom lab import cli\ntry:\n    cli.main({arguments})\nexcept SystemExit:\n    pass\n"
        "import lab.measuring.run\nsys.exit('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_report_of_what_is_no_results_folder_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert told.err.endswith("No such file or directory: name a folder that a run has written\n")
