#!/usr/bin/env bash
# The testbed in a virtual machine of its own (QEMU): Debian 12, whose kernel has Open vSwitch's datapath, netem and RED.
# For x86-64 Debian and Ubuntu; with KVM where it works, else software-emulated, which is slow. See docs/vm.md.
#
#   scripts/vm.sh run -- COMMAND...    in a copy of this repository; results/ and the exit status come back
#   scripts/vm.sh test                 tests/vm, the tests that need such a kernel
#   scripts/vm.sh image                only make the disk image, which run and test make when there is none
#
# VM_CPUS (2), VM_MEMORY_MIB (2048), VM_ACCEL (kvm or tcg) say what it gets; a command ends it with `timeout 600 scripts/vm.sh ...`.
# Exit status: the command's; 77 where QEMU cannot be had, with the reason; 2 where the image cannot be made; 125 where the
# machine ended without one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
needed=(qemu-system-x86 mmdebstrap debian-archive-keyring e2fsprogs python3)

cannot() { echo "vm.sh: $1" >&2; exit 77; }

[ "$(uname -m)" = x86_64 ] || cannot "this machine is $(uname -m), the image is for x86_64"
missing=()
for package in "${needed[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || cannot "needs ${missing[*]}, and there is no apt-get to install them"
    [ "$(id -u)" -eq 0 ] || { echo "vm.sh: needs ${missing[*]}: run it once with sudo" >&2; exit 2; }
    echo "vm: installing ${missing[*]} (apt)"
    log=$(mktemp)
    { apt-get update -q -o DPkg::Lock::Timeout=300 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}"
    } >"$log" 2>&1 || { tail -n 5 "$log" >&2; cannot "apt cannot install ${missing[*]}"; }
    rm -f "$log"
fi
# -B: run by root, in a repository that is the user's.
PYTHONPATH=$here exec /usr/bin/python3 -B -m vm "$@"
