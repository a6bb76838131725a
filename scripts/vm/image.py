"""The image that `scripts/vm.sh` boots: Debian with everything set up by scripts/setup.sh, made once and kept."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from vm import debian

ROOT = Path(__file__).resolve().parents[2]
# Where the repository is in the machine; .venv holds absolute paths.
HOME = "/srv/testbed"
_PACKAGES = ("kmod", "iproute2", "sudo", "ca-certificates", "netbase")
# What scripts/setup.sh reads: with another content the environment would be another.
_SET_UP_BY = (
    "constraints.txt",
    "scripts/preflight.py",
    "scripts/ryu-build-constraints.txt",
    "scripts/setup.sh",
    "scripts/vm/debian.py",
    "scripts/vm/image.py",
    "scripts/vm/init",
)
# The drivers of the disk are named, so that nothing needs to look for devices: ten seconds less of an emulated CPU's time.
_LEFT_OUT = ("/usr/share/initramfs-tools/*/udev",)
_SIZE = "8G"  # sparse: a third is used


@dataclass(frozen=True)
class Image:
    """A bootable disk and the kernel that boots it."""

    disk: Path
    kernel: Path
    initrd: Path


def the_image() -> Image:
    """Made if there is none for what the repository asks for now. Raises debian.Failed."""
    folder = _cache() / _key()
    found = Image(folder / "root.img", folder / "vmlinuz", folder / "initrd.img")
    _cache().mkdir(parents=True, exist_ok=True)
    with (_cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _make(folder)
        # Which image is in use is asked when another is made.
        os.utime(folder)
    return found


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ai-fabric-testbed"


def _key() -> str:
    digest = hashlib.sha256()
    for name in _SET_UP_BY:
        digest.update((ROOT / name).read_bytes())
    # What tools read, the list of our own packages too, comes after the dependencies and changes nothing in the environment.
    digest.update((ROOT / "pyproject.toml").read_bytes().partition(b"[tool.")[0])
    return f"image-{digest.hexdigest()[:16]}"


def _make(folder: Path) -> None:
    """Through a folder of another name: an image that was left half-made is no image."""
    if os.geteuid() != 0:
        raise debian.Failed("making the image needs root: run it once with sudo")
    started = time.monotonic()
    _forget_old()
    work = _cache() / "making"
    shutil.rmtree(work, ignore_errors=True)
    (work / "image").mkdir(parents=True)
    try:
        print("vm: making the image: Debian packages ...", flush=True)
        debian.make_root(work / "root", _PACKAGES, hooks=_hooks(), left_out=_LEFT_OUT)
        kernel, initrd = debian.kernel_and_initrd(work / "root")
        shutil.copy(kernel, work / "image" / "vmlinuz")
        shutil.copy(initrd, work / "image" / "initrd.img")
        disk = str(work / "image" / "root.img")
        subprocess.run(["truncate", "-s", _SIZE, disk], check=True)
        # Thrown away after each use: nothing to recover, so no journal.
        mke2fs = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=1"]
        subprocess.run([*mke2fs, "-d", str(work / "root"), disk], check=True)
        (work / "image").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"vm: image made in {time.monotonic() - started:.0f} s: {folder}", flush=True)


def _hooks() -> list[str]:
    """The repository as it is now, for setup.sh only: each machine gets a fresh copy."""
    pack = "tar -C {} --exclude=./.git --exclude=./.venv --exclude=./results -cf - ."
    return [
        f'install -m 755 {ROOT}/scripts/vm/init "$1/sbin/vm-init"',
        f'mkdir -p "$1{HOME}" && {pack.format(ROOT)} | tar -C "$1{HOME}" --no-same-owner -xf -',
        f'chroot "$1" {HOME}/scripts/setup.sh',
        f'find "$1{HOME}" -mindepth 1 -maxdepth 1 -not -name .venv -not -name "*.egg-info" -exec rm -rf {{}} +',
        'rm -rf "$1"/root/.cache "$1"/var/cache/apt/archives/*.deb',
    ]


def _forget_old() -> None:
    """Keep the one before: two branches of work may differ in what they need."""
    images = sorted(_cache().glob("image-*"), key=lambda folder: folder.stat().st_mtime)
    for folder in images[:-1]:
        shutil.rmtree(folder)
