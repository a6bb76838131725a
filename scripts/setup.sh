#!/usr/bin/env bash
# Install everything the testbed needs on Debian 12 or 13, Ubuntu 22.04 or 24.04: apt packages and the environment .venv.
# Run as root; run it again at any time: what is there already takes seconds and no network.
# SETUP_WITHOUT_DEV=1 leaves out the tools for tests and lint.
set -euo pipefail
umask 022

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
# Always the distribution's own Python, whatever else is called python3 on PATH: apt's Mininet belongs to it.
python=/usr/bin/python3
required=(mininet openvswitch-switch ethtool iproute2 iputils-ping procps python3-venv python-is-python3)
optional=(iperf3 tcpdump tcpreplay tshark)   # tests and benchmarks only
extras='[dev]'
[ -z "${SETUP_WITHOUT_DEV:-}" ] || extras=

# Settings of the caller's that would send pip or Python elsewhere than into .venv.
unset PYTHONHOME PYTHONPATH PIP_CONSTRAINT PIP_TARGET PIP_PREFIX
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore DEBIAN_FRONTEND=noninteractive

current='start'
log=$(mktemp -t ai-fabric-setup.XXXXXX)
made_policy=

finish() {
    local status=$?
    [ -z "$made_policy" ] || rm -f /usr/sbin/policy-rc.d
    if [ "$status" -eq 0 ]; then
        rm -f "$log"
    else
        printf 'failed\n' && tail -n 8 "$log" >&2
        echo "setup.sh: failed at: $current (exit $status; the whole output is in $log)" >&2
    fi
}

refuse() {
    trap - EXIT
    rm -f "$log"
    echo "setup.sh: $1" >&2
    exit 2
}

# step TEXT COMMAND...: one line of progress; the first failing command ends the script through `finish`.
step() {
    current=$1
    local started=$SECONDS
    printf 'setup: %s ... ' "$current"
    "${@:2}" >"$log" 2>&1
    printf 'ok, %d s\n' $((SECONDS - started))
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

not_installed() {
    local package
    for package in "$@"; do installed "$package" || echo "$package"; done
}

apt_install() { apt-get install -y -q --no-install-recommends --no-upgrade -o DPkg::Lock::Timeout=300 "$@"; }

# Each run starts an Open vSwitch of its own: the one that apt brings is neither started now nor at the next boot.
install_required() {
    local fresh_ovs
    fresh_ovs=$(not_installed openvswitch-switch)
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        made_policy=yes
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod 755 /usr/sbin/policy-rc.d
    fi
    apt_install "$@"
    if [ -n "$fresh_ovs" ] && command -v systemctl; then
        systemctl disable openvswitch-switch.service
    fi
}

install_optional() {
    local package
    for package in "$@"; do
        apt_install "$package" || unavailable+=("$package")
    done
}

packages() {
    local wanted
    mapfile -t wanted < <(not_installed "${required[@]}")
    mapfile -t extra < <(not_installed "${optional[@]}")
    unavailable=()
    [ $((${#wanted[@]} + ${#extra[@]})) -gt 0 ] || return 0
    step 'package lists (apt)' refresh "${#wanted[@]}"
    [ ${#wanted[@]} -eq 0 ] || step "${wanted[*]} (apt)" install_required "${wanted[@]}"
    [ ${#extra[@]} -eq 0 ] || step "${extra[*]} (apt, optional)" install_optional "${extra[@]}"
    [ ${#unavailable[@]} -eq 0 ] || echo "setup: warning: not installed: ${unavailable[*]}; only tests and benchmarks use them"
}

# Without network and with only optional packages missing, going on is right.
refresh() { apt-get update -q -o DPkg::Lock::Timeout=300 || [ "$1" -eq 0 ]; }

# What the environment depends on; .venv/setup-stamp holds it once all is installed and imports.
fingerprint() {
    { "$python" -VV; echo "$venv $extras"; cat "$root"/{constraints.txt,pyproject.toml,scripts/setup.sh,scripts/ryu-build-constraints.txt}; } |
        sha256sum | cut -d' ' -f1
}

make_venv() {
    rm -f "$venv/setup-stamp"
    local version='import sys; print(sys.version)'
    if [ "$("$venv/bin/python" -c "$version" 2>/dev/null)" != "$("$python" -c "$version")" ]; then
        "$python" -m venv --clear "$venv"
    fi
    pip install pip setuptools
}

pip() { "$venv/bin/python" -m pip "$1" -q -c "$root/constraints.txt" "${@:2}"; }

# Of the system's Python packages Mininet alone is let in: all of them would mix other versions into ours.
link_mininet() {
    ln -sfn /usr/lib/python3/dist-packages/mininet "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mininet"
}

install_ryu() { pip install --use-pep517 --build-constraint "$root/scripts/ryu-build-constraints.txt" ryu; }

install_python() { pip install --no-build-isolation -e "$root$extras"; }

# Under sudo the environment belongs to whoever owns the repository.
give_back() { chown -R --reference="$root" "$venv"; }

[ "$(id -u)" -eq 0 ] || refuse "needs root: run \`sudo $root/scripts/setup.sh\`"
command -v apt-get >/dev/null || refuse 'needs apt-get: only Debian and Ubuntu are supported; on others use the Vagrantfile'
trap finish EXIT
exec 9<"$root/scripts/setup.sh"
flock 9

packages
"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' ||
    refuse "$("$python" -V) at $python: the pinned packages are for Python 3.10 to 3.13"
stamp=$(fingerprint)
if [ "$(cat "$venv/setup-stamp" 2>/dev/null)" != "$stamp" ] || ! "$venv/bin/python" "$root/scripts/preflight.py" >/dev/null 2>&1; then
    step 'virtual environment .venv' make_venv
    step 'Ryu' install_ryu
    step 'Python packages' install_python
    link_mininet
    step 'imports' "$venv/bin/python" "$root/scripts/preflight.py"
    give_back
    echo "$stamp" >"$venv/setup-stamp"
fi
echo 'setup: ready. Next: sudo python3 run_topo.py'
