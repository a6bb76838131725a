"""scripts/vm without a machine: when an image is another, which accelerator is taken, what comes back."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import vm.guest as guest  # noqa: PLR0402 (mypy finds a module of scripts by its full name only)
import vm.image as image  # noqa: PLR0402

NOWHERE = image.Image(Path("/none"), Path("/none"), Path("/none"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of what the image is made from."""
    for name in (*image._SET_UP_BY, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image.ROOT / name, tmp_path / name)
    monkeypatch.setattr(image, "ROOT", tmp_path)
    monkeypatch.setattr(guest, "ROOT", tmp_path)
    return tmp_path


def append(file: Path, text: str) -> None:
    with file.open("a") as opened:
        opened.write(text)


def test_another_pin_makes_another_image_and_a_checker_s_setting_does_not(checkout: Path) -> None:
    before = image._key()
    project = checkout / "pyproject.toml"
    project.write_text(project.read_text().replace("line-length = 120", "line-length = 100"))
    assert image._key() == before
    append(checkout / "constraints.txt", "another==1.0\n")
    assert image._key() != before


@pytest.mark.parametrize(
    ("stands_for_qemu", "accelerator"), [(["true"], "kvm"), (["false"], "tcg"), (["sh", "-c", "sleep 60"], "tcg")]
)
def test_kvm_is_taken_where_a_kernel_gets_through(
    monkeypatch: pytest.MonkeyPatch, stands_for_qemu: list[str], accelerator: str
) -> None:
    monkeypatch.delenv("VM_ACCEL", raising=False)
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(guest, "_KVM_DEADLINE_S", 0.3)
    monkeypatch.setattr(guest, "_machine", lambda _: stands_for_qemu)
    assert guest._accelerator(NOWHERE) == accelerator


def test_without_the_right_to_use_kvm_it_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VM_ACCEL", raising=False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert guest._accelerator(NOWHERE) == "tcg"


def test_a_machine_that_ends_without_a_result_says_its_last_words(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "results.tar").write_bytes(bytes(10240))
    (checkout / "console.log").write_text("Kernel panic - not syncing: no init\n")
    assert guest._bring_back(checkout) == 125
    assert "Kernel panic - not syncing: no init" in capsys.readouterr().err


def test_status_and_results_come_back(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    inside, folder = (tmp_path_factory.mktemp(name) for name in ("inside", "scratch"))
    (inside / "results" / "one").mkdir(parents=True)
    (inside / "results" / "one" / "results.csv").write_text("x")
    (inside / ".vm-status").write_text("3\n")
    subprocess.run(["tar", "-C", inside, "-cf", folder / "results.tar", ".vm-status", "results"], check=True)
    assert guest._bring_back(folder) == 3
    assert (checkout / "results" / "one" / "results.csv").read_text() == "x"
    assert not (checkout / ".vm-status").exists()


def test_the_machine_gets_the_repository_without_what_is_made_in_it(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for left_out in (".git", ".venv", "results"):
        (checkout / left_out).mkdir()
        (checkout / left_out / "file").touch()
    (checkout / "mine.py").touch()
    folder = tmp_path_factory.mktemp("scratch")
    guest._pack(folder, ["python3", "run_topo.py", "--topology", "a b"])
    listed = subprocess.run(["tar", "-tf", folder / "repository.tar"], capture_output=True, text=True, check=True)
    names = listed.stdout.split()
    assert {"./mine.py", "./constraints.txt", "./.vm-command"} <= set(names)
    assert not [name for name in names if name.startswith(("./.git", "./.venv", "./results"))]
    assert (folder / "extra" / ".vm-command").read_text() == "exec python3 run_topo.py --topology 'a b'\n"
