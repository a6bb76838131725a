"""A Debian root file system from apt packages alone: no download of a published image, no loop device."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

SUITE = "bookworm"
# Half the size of the full kernel, with Open vSwitch's datapath, netem, RED and DCTCP; without RDMA (docs/vm.md).
KERNEL = "linux-image-cloud-amd64"
# What apt of this machine needs to reach its archive, the new system's does too.
_APT_SETTINGS = (
    "Acquire::http",
    "Acquire::https",
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::Retries",
)
_TRUST = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
_INITRAMFS = "MODULES=list\nCOMPRESS=lz4\n"
_INITRAMFS_MODULES = "virtio_pci\nvirtio_blk\nvirtio_scsi\nsd_mod\next4\ncrc32c_generic\n"


class Failed(Exception):
    """The image cannot be made: one sentence."""


def make_root(
    root: Path,
    packages: Sequence[str],
    *,
    kernel: str = KERNEL,
    hooks: Iterable[str] = (),
    left_out: Sequence[str] = (),
) -> None:
    """Install the packages and the kernel into `root`, a new folder, then run each hook, a shell command in which $1 is
    the folder. left_out: files that no package may bring. Needs root. Raises Failed with the last lines that mmdebstrap wrote."""
    # Mounts of its own, which end with it, however it ends: what is left is a folder that can be removed.
    command = ["unshare", "--mount", "mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase"]
    command += [f"--aptopt={line}" for line in ('APT::Install-Recommends "false"', *_apt_settings())]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in (*_LEFT_OUT, *left_out)]
    command.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
    command.append(f"--essential-hook={writing('etc/initramfs-tools/conf.d/small', _INITRAMFS)}")
    command.append(f"--essential-hook={writing('etc/initramfs-tools/modules', _INITRAMFS_MODULES)}")
    command.append(f"--include={','.join([kernel, *packages])}")
    command += [
        f'--customize-hook=mkdir -p "$1{Path(f).parent}" && cp {f} "$1{f}"' for f in _TRUST if os.path.exists(f)
    ]
    command += [f"--customize-hook={hook}" for hook in hooks]
    done = subprocess.run(
        [*command, SUITE, str(root)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write("".join(done.stdout.splitlines(keepends=True)[-15:]))
        raise Failed(f"mmdebstrap ended with status {done.returncode}")


def _apt_settings() -> list[str]:
    dumped = ["apt-config", "dump", "--no-empty", "--format", '%F "%v";%n', *_APT_SETTINGS]
    return subprocess.run(dumped, capture_output=True, text=True, check=True).stdout.splitlines()


def writing(name: str, text: str) -> str:
    """A hook that writes a file of the new system."""
    return f'mkdir -p "$1/{Path(name).parent}" && printf %s {shlex.quote(text)} >"$1/{name}"'


def kernel_and_initrd(root: Path) -> tuple[Path, Path]:
    (kernel,) = (root / "boot").glob("vmlinuz-*")
    (initrd,) = (root / "boot").glob("initrd.img-*")
    return kernel, initrd
