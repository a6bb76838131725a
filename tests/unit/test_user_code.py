"""A user's own files may do anything: whatever they do is one line and status 2, before anything is made."""

import signal
from pathlib import Path

import pytest

from lab import cli
from lab.machine import sandbox
from topologies import Refused, user_code

POLICIES = """
from topologies.errors import Refused
def nothing(fabric, down): return None
def number(fabric, down): return 5
def names(fabric, down): return ["leaf1"]
def lists(fabric, down): return {"leaf1": [1, 2]}
def silent(fabric, down): return {}
def stranger(fabric, down):
    from controller.rules import SwitchRules
    return {"nosuch": SwitchRules()}
def raises(fabric, down): raise ValueError("two\\nlines")
def leaves(fabric, down): raise SystemExit(0)
def endless(fabric, down): return endless(fabric, down)
def refuses(fabric, down): raise Refused("not\\nthis fabric")
def no_arguments(): return {}
value = 3
class Thing: pass
"""
TOPOLOGIES = """
from dataclasses import dataclass
from topologies.builder import FabricBuilder
from topologies.spine_leaf import SpineLeaf
@dataclass(frozen=True)
class Raises:
    n: int = 2
    def build(self): raise ValueError("two\\nlines")
@dataclass(frozen=True)
class Leaves:
    n: int = 2
    def build(self): raise SystemExit(0)
@dataclass(frozen=True)
class Number:
    n: int = 2
    def build(self): return 42
@dataclass(frozen=True)
class Bare:
    n: int
    def build(self): return None
@dataclass(frozen=True)
class Picky:
    n: int = 2
    def __post_init__(self): raise KeyError("n")
    def build(self): return None
class Plain:
    def build(self): return None
@dataclass(frozen=True)
class Empty:
    def build(self): return FabricBuilder("empty", {}).build()
@dataclass(frozen=True)
class Loose:
    def build(self): return pair({}).build()
@dataclass(frozen=True)
class Cable:
    def build(self):
        fabric = pair({})
        fabric.link("h1", "h2", "scale-out")
        return fabric.build()
@dataclass(frozen=True)
class Secret:
    def build(self): return plugged(pair({"secret": object()}))
@dataclass(frozen=True)
class Nameless:
    def build(self): return plugged(pair({}, addresses=False))
@dataclass(frozen=True)
class Endless:
    def build(self):
        fabric = FabricBuilder("endless", {})
        while True: fabric.switch("s", "leaf")
@dataclass(frozen=True)
class Derived(SpineLeaf):
    extra: int = 3
def pair(parameters, addresses=True):
    fabric = FabricBuilder("pair", parameters)
    for n in (1, 2):
        fabric.host(f"h{n}", *([f"198.18.0.{n}"] if addresses else []))
    return fabric
def plugged(fabric):
    fabric.switch("s1", "leaf", prefix="198.18.0.0/29")
    for n in (1, 2):
        fabric.link(f"h{n}", "s1", "scale-out")
    return fabric.build()
"""


@pytest.fixture(autouse=True)
def _no_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(*_: object, **__: object) -> int:
        raise AssertionError("a sandbox was made")

    monkeypatch.setattr(sandbox, "run", made)
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], file: str, *arguments: str) -> str:
    """The one line of a refusal; `file` is the text of mine.py."""
    Path("mine.py").write_text(file)
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert {entry.name for entry in Path().iterdir()} <= {"mine.py", "__pycache__"}
    return said.err.rstrip()


@pytest.mark.parametrize("command", ["run", "predict"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "policy nothing: must return {switch name: SwitchRules}, not NoneType"),
        ("number", "not int"),
        ("names", "not list"),
        ("lists", "must return SwitchRules for 'leaf1', not list"),
        ("silent", "does not carry this traffic"),
        ("stranger", "unknown switch 'nosuch'"),
        ("raises", "policy raises failed: ValueError: two lines"),
        ("leaves", "SystemExit: 0"),
        ("endless", "RecursionError"),
        ("refuses", "not this fabric"),
        ("no_arguments", "TypeError"),
        ("value", "must be a function"),
        ("Thing", "TypeError"),
        ("nosuch", "unknown name 'nosuch': choose from"),
    ],
)  # fmt: skip
def test_a_policy_is_asked_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], command: str, name: str, said: str
) -> None:
    arguments = ("--routing", f"./mine.py:{name}", "--scale", "16000:240")
    assert said in refused(capsys, POLICIES, command, *arguments)


@pytest.mark.parametrize("command", ["run", "describe", "predict", "cli"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Raises", "topology Raises: build() failed: ValueError: two lines"),
        ("Leaves", "SystemExit: 0"),
        ("Number", "must return a Fabric, not int"),
        ("Bare", "n must be given, or have a default"),
        ("Picky", "KeyError: 'n'"),
        ("Plain", "must be a frozen dataclass with a build() method"),
        ("Empty", "it has no hosts"),
        ("Loose", "h1 has no scale-out interface"),
        ("Cable", "h1 is plugged into h2"),
        ("Secret", "not JSON serializable"),
        ("Nameless", "h1-eth0 has no address"),
        ("Endless", "more than 5,000 switches"),
    ],
)  # fmt: skip
def test_a_topology_that_fails(capsys: pytest.CaptureFixture[str], command: str, name: str, said: str) -> None:
    assert said in refused(capsys, TOPOLOGIES, command, "--topology", f"./mine.py:{name}")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("def x(:", "SyntaxError"),
        ("import nosuch_module", "ModuleNotFoundError"),
    ],
)
def test_a_file_that_cannot_be_imported(capsys: pytest.CaptureFixture[str], file: str, said: str) -> None:
    for arguments in (["--topology", "./mine.py:X"], ["predict", "--routing", "./mine.py:x"], ["check", "mine.py"]):
        assert said in refused(capsys, file, *arguments)


@pytest.mark.parametrize("spec", ["nosuch.py", "nosuch.py:X", "./mine.py:"])
def test_a_file_that_is_none(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    line = refused(capsys, "", "check", spec)
    assert repr(spec) in line and "FILE.py" in line


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Raises", "ValueError: two lines"),
        ("Leaves", "SystemExit: 0"),
        ("Number", "not int"),
        ("Bare", "n must be given, or have a default"),
    ],
)
def test_check_finds_it(capsys: pytest.CaptureFixture[str], name: str, said: str) -> None:
    Path("mine.py").write_text(TOPOLOGIES)
    assert cli.main(["check", f"./mine.py:{name}"]) == 1
    verdict, finding = capsys.readouterr().out.splitlines()
    assert (verdict, said in finding) == (f"topology {name}: fails", True)


def test_a_topology_derived_from_one_of_ours_may_have_more_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(TOPOLOGIES)
    assert cli.main(["describe", "--topology", "./mine.py:Derived:extra=4"]) == 0
    assert "spine-leaf" in capsys.readouterr().out


def _for_ever() -> None:
    while True:
        pass


def test_code_that_does_not_come_back_is_given_up() -> None:
    with pytest.raises(Refused, match=r"^mine failed: TimeoutError: no answer within 0.05 s$"):
        user_code.call("mine", _for_ever, 0.05)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_limit_within_a_limit_leaves_the_outer_one() -> None:
    def inner_then_for_ever() -> None:
        user_code.call("inner", lambda: None, 10)
        _for_ever()

    with pytest.raises(Refused, match=r"no answer within 0.05 s"):
        user_code.call("outer", inner_then_for_ever, 0.05)
