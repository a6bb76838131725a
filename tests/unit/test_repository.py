"""What holds for the repository as a whole: pins, scripts, the way in."""

import ast
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("topologies", "controller", "traffic", "lab")


def pins() -> dict[NormalizedName, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def declared(*extras: str) -> list[Requirement]:
    """What the project and its extras ask for by name."""
    project = PROJECT["project"]
    optional = [text for extra in extras for text in project["optional-dependencies"][extra]]
    return [Requirement(text) for text in [*project["dependencies"], *optional]]


def test_every_dependency_has_a_pin_that_it_allows() -> None:
    for wanted in declared(*PROJECT["project"]["optional-dependencies"]):
        pin = pins()[canonicalize_name(wanted.name)]
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert wanted.specifier.contains(exact.version), f"{wanted} does not allow {pin}"


@pytest.mark.parametrize("name", ["constraints.txt", "scripts/ryu-build-constraints.txt"])
def test_constraints_name_no_host(name: str) -> None:
    assert not re.search(r"://|^-|@", (ROOT / name).read_text(), re.MULTILINE)


def test_the_environment_has_the_pinned_versions() -> None:
    """What only extras other than dev need may be missing."""
    needed = {canonicalize_name(wanted.name) for wanted in declared("dev")}
    for name, pin in pins().items():
        if (pin.marker is None or pin.marker.evaluate()) and (name in needed or installed(name)):
            assert pin.specifier.contains(version(name)), f"{name} is {version(name)}: run scripts/setup.sh"


def installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def test_every_package_folder_is_named_in_pyproject() -> None:
    folders = {
        ".".join(p.parent.relative_to(ROOT).parts) for top in PACKAGES for p in (ROOT / top).rglob("__init__.py")
    }
    assert folders == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_license_is_named_and_there() -> None:
    assert PROJECT["project"]["license"] == "BSD-3-Clause"
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License")


@pytest.mark.parametrize(
    "name",
    [
        "run_topo.py",
        ".ci/run",
        *(f"scripts/{n}.sh" for n in ("setup", "check", "self_test", "test", "vagrant_up_test", "vm")),
    ],
)
def test_what_people_start_is_executable(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_shell_scripts_parse_and_stop_at_the_first_failure(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    assert "set -euo pipefail" in path.read_text()


def test_the_controller_never_imports_scapy() -> None:
    for path in (ROOT / "controller").rglob("*.py"):
        assert "scapy" not in top_level_imports(path), path


def test_pure_files_import_no_edge() -> None:
    (ignored,) = (c["ignore_imports"] for c in PROJECT["tool"]["importlinter"]["contracts"] if "ignore_imports" in c)
    expressions = [text.removesuffix(" -> *") for text in ignored if text.endswith(" -> *")]
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    edges = {module for expression in expressions for module in graph.find_matching_modules(expression)}
    # A package's own file holds its registry, in which edges may stand.
    pure = graph.modules - edges - set(PACKAGES)
    wrong = [(a, b) for b in sorted(edges) for a in sorted(graph.find_modules_that_directly_import(b) & pure)]
    assert wrong == []


def top_level_imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


# -- run_topo.py: whichever Python starts it, .venv's does the work ---------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with run_topo.py and a command line that says who runs it."""
    shutil.copy(ROOT / "run_topo.py", tmp_path)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").touch()
    (tmp_path / "lab" / "cli.py").write_text(
        "import sys\ndef main(argv):\n    print(sys.prefix, *argv)\n    return 3\n"
    )
    return tmp_path


def start(checkout: Path, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, checkout / "run_topo.py", *argv],
        env={**os.environ, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_another_python_hands_over_to_the_environment(checkout: Path) -> None:
    venv.create(checkout / ".venv", with_pip=False)
    done = start(checkout, "describe", "--topology", "a b")
    assert done.stdout == f"{checkout / '.venv'} describe --topology a b\n"
    assert done.returncode == 3


def test_the_environments_own_python_runs_it_directly(checkout: Path) -> None:
    venv.create(checkout / ".venv", with_pip=False)
    inside = subprocess.run(
        [checkout / ".venv/bin/python", checkout / "run_topo.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert inside.stdout == f"{checkout / '.venv'}\n"


def test_without_an_environment_one_line_says_what_to_run(checkout: Path) -> None:
    done = start(checkout)
    assert done.returncode == 2
    assert done.stderr == (
        f"run_topo.py: no working environment in {checkout}/.venv: run `sudo {checkout}/scripts/setup.sh` first\n"
    )


def test_an_environment_that_does_not_take_effect_makes_no_loop(checkout: Path) -> None:
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to(Path(sys.executable).resolve())
    done = start(checkout)
    assert done.returncode == 2
    assert "no working environment" in done.stderr


def test_an_unfinished_environment_names_what_is_missing(checkout: Path) -> None:
    venv.create(checkout / ".venv", with_pip=False)
    (checkout / "lab" / "cli.py").write_text("import numpy\n")
    done = start(checkout)
    assert done.returncode == 2
    assert f"{checkout}/.venv/bin/python cannot import numpy" in done.stderr
    assert len(done.stderr.splitlines()) == 1
