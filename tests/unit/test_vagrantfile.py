"""The Vagrantfile, without starting a machine: `scripts/vagrant_up_test.sh` does that."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def vagrant(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """With a VirtualBox that is there as far as Vagrant asks, and with settings of its own."""
    stub = tmp_path / "VBoxManage"
    stub.write_text("#!/bin/sh\necho 7.0.20r163906\n")
    stub.chmod(0o755)
    return subprocess.run(
        ["vagrant", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "VAGRANT_HOME": str(tmp_path / "home"),
            "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_box_is_pinned() -> None:
    text = (ROOT / "Vagrantfile").read_text()
    assert re.search(r"box = 'debian/bookworm64'$", text, re.MULTILINE)
    assert re.search(r"box_version = '12\.\d{8}\.\d+'$", text, re.MULTILINE)


@pytest.mark.parametrize("provider", [pytest.param("libvirt", marks=pytest.mark.needs("virsh")), "virtualbox"])
@pytest.mark.needs("vagrant")
def test_vagrant_takes_it_for_each_provider(tmp_path: Path, provider: str) -> None:
    done = vagrant(tmp_path, "validate", VAGRANT_DEFAULT_PROVIDER=provider, VM_CPUS="1", VM_MEMORY_MIB="2048")
    assert done.returncode == 0, done.stderr
    assert "validated successfully" in done.stdout


@pytest.mark.needs("vagrant")
def test_a_size_that_is_no_number_is_refused_in_one_line(tmp_path: Path) -> None:
    done = vagrant(tmp_path, "validate", VM_CPUS="two")
    assert done.returncode != 0
    assert done.stderr == "Vagrantfile: VM_CPUS=two is not a whole number: 2 is the default\n"


@pytest.mark.needs("vagrant")
def test_another_provider_stops_with_those_that_are_supported(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    done = vagrant(tmp_path, "up", "--provider=docker")
    assert done.returncode != 0
    assert done.stderr.endswith(
        "Vagrantfile: provider docker is not supported: use vagrant up --provider=libvirt or virtualbox\n"
    )
