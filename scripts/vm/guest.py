"""The machine: boots the image in QEMU, hands it the repository and a command, and brings results and status back."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vm.image import ROOT, Image

NO_VERDICT = 125
# tsc: without it the guest reads a clock that QEMU emulates, ten times slower. mitigations: nobody else is in there.
_KERNEL_LINE = (
    "root=/dev/vda rw init=/sbin/vm-init console=ttyS0 quiet panic=-1 net.ifnames=0 nokaslr audit=0 "
    "mitigations=off tsc=reliable clocksource=tsc random.trust_cpu=on"
)
_KVM_DEADLINE_S = 5.0
# The least CPU that NumPy's wheels run on: emulating what newer ones have costs a third more time (measured).
_EMULATED = ["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "Nehalem"]
_RESULTS_BYTES = 4 << 30  # sparse
_LEFT_OUT = (".git", ".venv", "results", "*_cache", "*.egg-info", ".hypothesis", ".vagrant")


def run(image: Image, command: Sequence[str]) -> int:
    """The command's exit status; NO_VERDICT where the machine ended without one, with its last words."""
    with tempfile.TemporaryDirectory(prefix="vm.", dir="/var/tmp") as scratch:
        folder = Path(scratch)
        _pack(folder, command)
        with (folder / "results.tar").open("wb") as file:
            file.truncate(_RESULTS_BYTES)
        accelerator = _accelerator(image)
        print(f"vm: booting ({'KVM' if accelerator == 'kvm' else 'software-emulated CPUs: slow'})", flush=True)
        subprocess.run(
            _qemu(image, folder, accelerator), stdin=None if _terminal() else subprocess.DEVNULL, check=False
        )
        return _bring_back(folder)


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _pack(folder: Path, command: Sequence[str]) -> None:
    """The repository as it is, with edits and new files, and the command, as one tar file."""
    extra = folder / "extra"
    extra.mkdir()
    (extra / ".vm-command").write_text(f"exec {shlex.join(command)}\n")
    (extra / ".vm-settings").write_text("".join(f"{k}={shlex.quote(v)}\n" for k, v in _settings().items()))
    left_out = [f"--exclude=./{pattern}" for pattern in _LEFT_OUT]
    subprocess.run(
        [
            "tar",
            "-cf",
            folder / "repository.tar",
            *left_out,
            "--owner=0",
            "--group=0",
            "-C",
            ROOT,
            ".",
            "-C",
            extra,
            ".",
        ],
        check=True,
    )


def _settings() -> dict[str, str]:
    owner = ROOT.stat()
    size = shutil.get_terminal_size()
    return {
        "OWNER": f"+{owner.st_uid}",
        "GROUP": f"+{owner.st_gid}",
        "TERMINAL": "yes" if _terminal() else "no",
        "TERM": os.environ.get("TERM", "dumb"),
        "ROWS": str(size.lines),
        "COLUMNS": str(size.columns),
    }


def _accelerator(image: Image) -> str:
    """KVM where a kernel gets through its start with it: /dev/kvm may be there and hang every guest."""
    if asked := os.environ.get("VM_ACCEL"):
        return asked
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    # Without a root file system a kernel that works panics, which ends QEMU.
    try:
        done = subprocess.run(
            [*_machine("kvm"), "-m", "256", "-display", "none", "-kernel", image.kernel, "-append", "panic=-1"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_KVM_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "tcg"
    return "kvm" if done.returncode == 0 else "tcg"


def _machine(accelerator: str) -> list[str]:
    kind = ["-accel", "kvm", "-cpu", "host"] if accelerator == "kvm" else _EMULATED
    # Ended with this process, however it ends.
    return [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "qemu-system-x86_64",
        *kind,
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
    ]


def _qemu(image: Image, folder: Path, accelerator: str) -> list[str | Path]:
    """No network interface: what runs in there reaches nothing outside."""
    return [
        *_machine(accelerator),
        *("-smp", os.environ.get("VM_CPUS", "2"), "-m", os.environ.get("VM_MEMORY_MIB", "2048"), "-display", "none"),
        *("-kernel", image.kernel, "-initrd", image.initrd, "-append", _KERNEL_LINE),
        *("-drive", f"if=virtio,format=raw,snapshot=on,file={image.disk}"),
        *("-drive", f"if=virtio,format=raw,readonly=on,file={folder / 'repository.tar'}"),
        *("-drive", f"if=virtio,format=raw,cache=unsafe,file={folder / 'results.tar'}"),
        *("-device", "virtio-rng-pci", "-serial", f"file:{folder / 'console.log'}"),
        *(
            "-device",
            "virtio-serial-pci",
            "-chardev",
            "stdio,id=screen,signal=off",
            "-device",
            "virtconsole,chardev=screen",
        ),
    ]


def _bring_back(folder: Path) -> int:
    subprocess.run(["tar", "-C", folder, "-xf", folder / "results.tar"], stderr=subprocess.DEVNULL, check=False)
    status = folder / ".vm-status"
    if not status.exists():
        last = (folder / "console.log").read_text(errors="replace").splitlines()[-8:]
        print("vm.sh: the machine ended without a result:", *last, sep="\n  ", file=sys.stderr)
        return NO_VERDICT
    if any((folder / "results").iterdir()):
        same_owner = "--same-owner" if os.geteuid() == 0 else "--no-same-owner"
        subprocess.run(["tar", "-C", ROOT, same_owner, "-xf", folder / "results.tar", "results"], check=True)
    return int(status.read_text())
