"""A plain Debian 12 box for vagrant-libvirt, from apt packages alone: what the Vagrantfile's own box is, as far as it is used.

Plain: a box that is set up already would hide what scripts/setup.sh forgets.
"""

import json
import shlex
import subprocess
import tempfile
from pathlib import Path

from vm import debian

_PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "kmod", "procps", "netbase", "ifupdown", "isc-dhcp-client", "iproute2"),
    *("openssh-server", "sudo", "rsync", "ca-certificates", "e2fsprogs"),
)
_UUID = "7e57bed0-0000-4000-8000-000000000001"
_DISK_GIB, _SECTOR, _FIRST_SECTOR, _BLOCK = 10, 512, 2048, 4096
_GRUB_CFG = f"""set timeout=0
search --no-floppy --fs-uuid --set=root {_UUID}
linux /vmlinuz root=UUID={_UUID} ro net.ifnames=0 console=tty0 console=ttyS0,115200 quiet
initrd /initrd.img
boot
"""
# Vagrant's own public key, which it replaces by a new one at the first `up`: part of its package.
_KEYS = ("/usr/share/rubygems-integration/all/gems/vagrant-*/keys/vagrant.pub", "/usr/share/vagrant/keys/vagrant.pub")
_FILES = {
    "/etc/hostname": "bookworm\n",
    "/etc/hosts": "127.0.0.1\tlocalhost\n127.0.1.1\tbookworm\n",
    "/etc/network/interfaces": "auto lo\niface lo inet loopback\nallow-hotplug eth0\niface eth0 inet dhcp\n",
    "/etc/fstab": f"UUID={_UUID} / ext4 errors=remount-ro 0 1\n",
    "/etc/sudoers.d/vagrant": "vagrant ALL=(ALL) NOPASSWD: ALL\n",
    "/etc/ssh/sshd_config.d/vagrant.conf": "UseDNS no\n",
    "/boot/grub/grub.cfg": _GRUB_CFG,
}
# Nothing that works at its own time: an emulated CPU has none to spare.
_MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "man-db.timer",
    "e2scrub_all.timer",
    "systemd-timesyncd.service",
)
_VAGRANTFILE = "Vagrant.configure('2') { |config| config.vm.provider(:libvirt) { |l| l.disk_bus = 'virtio' } }\n"


def make_box(file: Path) -> None:
    """Write the box. Raises debian.Failed."""
    file = file.resolve()
    with tempfile.TemporaryDirectory(prefix="box.", dir="/var/tmp") as scratch:
        work = Path(scratch)
        debian.make_root(work / "root", _PACKAGES, hooks=_hooks())
        _make_disk(work, work / "box.raw")
        subprocess.run(["qemu-img", "convert", "-O", "qcow2", work / "box.raw", work / "box.img"], check=True)
        about = {"provider": "libvirt", "format": "qcow2", "virtual_size": _DISK_GIB}
        (work / "metadata.json").write_text(json.dumps(about))
        (work / "Vagrantfile").write_text(_VAGRANTFILE)
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-C", work, "-cSf", file, "metadata.json", "Vagrantfile", "box.img"], check=True)


def _hooks() -> list[str]:
    key = next((str(path) for pattern in _KEYS for path in Path("/").glob(pattern[1:])), None)
    if key is None:
        raise debian.Failed("Vagrant's public key is not on this machine: apt-get install vagrant")
    home = '"$1"/home/vagrant/.ssh'
    return [
        'chroot "$1" useradd --create-home --shell /bin/bash vagrant',
        f"install -d -m 700 {home} && install -m 600 {key} {home}/authorized_keys",
        'chroot "$1" chown -R vagrant:vagrant /home/vagrant/.ssh',
        *(debian.writing(name[1:], text) for name, text in _FILES.items()),
        'chmod 440 "$1"/etc/sudoers.d/vagrant',
        *(f'ln -sf /dev/null "$1"/etc/systemd/system/{unit}' for unit in _MASKED),
        'rm -f "$1"/etc/resolv.conf && : >"$1"/etc/machine-id',
    ]


def _make_disk(work: Path, disk: Path) -> None:
    """One partition with ext4, and GRUB for BIOS in the gap before it; no loop device."""
    subprocess.run(["truncate", "-s", f"{_DISK_GIB}G", disk], check=True)
    subprocess.run(["sfdisk", "-q", disk], input=f"{_FIRST_SECTOR},,L,*\n", text=True, check=True)
    offset = _FIRST_SECTOR * _SECTOR
    blocks = (_DISK_GIB * 2**30 - offset) // _BLOCK
    ext4 = [
        "mke2fs",
        "-q",
        "-F",
        "-t",
        "ext4",
        "-b",
        str(_BLOCK),
        "-U",
        _UUID,
        "-E",
        f"offset={offset},lazy_itable_init=1",
    ]
    subprocess.run([*ext4, "-d", work / "root", disk, str(blocks)], check=True)
    modules = shlex.split("biosdisk part_msdos ext2 linux normal search search_fs_uuid boot")
    core = work / "core.img"
    grub = ["grub-mkimage", "-O", "i386-pc", "-p", "(hd0,msdos1)/boot/grub", "-o", str(core)]
    subprocess.run([*grub, *modules], check=True)
    with disk.open("r+b") as file:
        # The boot sector's code ends where the partition table begins.
        file.write(Path("/usr/lib/grub/i386-pc/boot.img").read_bytes()[:440])
        file.seek(_SECTOR)
        if core.stat().st_size > offset - _SECTOR:
            raise debian.Failed("GRUB does not fit before the partition")
        file.write(core.read_bytes())
