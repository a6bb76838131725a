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
policy=/usr/sbin/policy-rc.d
policy_mark='# by ai-fabric-testbed: starts no service while packages are installed'

finish() {
    local status=$?
    remove_policy
    if [ "$status" -eq 0 ]; then
        rm -f "$log"
    else
        printf 'failed\n'
        tail -n 8 "$log" >&2
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

# Known by its mark: one that a killed run left behind is taken away by the next run.
remove_policy() { ! grep -qsF "$policy_mark" "$policy" || rm -f "$policy"; }

# Each run starts an Open vSwitch of its own: the one that apt brings is neither started now nor at the next boot.
install_required() {
    local fresh_ovs
    fresh_ovs=$(not_installed openvswitch-switch)
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy"
        chmod 755 "$policy"
    fi
    apt_install "$@"
    remove_policy
    # Without systemctl there is no systemd that could start it at boot.
    if [ -n "$fresh_ovs" ] && command -v systemctl; then
        systemctl disable openvswitch-switch.service
    fi
}

install_optional() {
    local package
    for package in "$@"; do
        apt_install "$package" || echo "cannot be had: $package"
    done
}

packages() {
    local wanted extra=()
    mapfile -t wanted < <(not_installed "${required[@]}")
    # Those that cannot be had are tried again only when something else is set up anew.
    "$up_to_date" || mapfile -t extra < <(not_installed "${optional[@]}")
    if [ $((${#wanted[@]} + ${#extra[@]})) -gt 0 ]; then
        step 'package lists (apt)' refresh "${#wanted[@]}"
        [ ${#wanted[@]} -eq 0 ] || step "${wanted[*]} (apt)" install_required "${wanted[@]}"
        [ ${#extra[@]} -eq 0 ] || step "${extra[*]} (apt, optional)" install_optional "${extra[@]}"
    fi
    mapfile -t extra < <(not_installed "${optional[@]}")
    [ ${#extra[@]} -eq 0 ] || echo "setup: warning: not installed: ${extra[*]}; only tests and benchmarks use them"
}

# Without network and with only optional packages missing, going on is right.
refresh() { apt-get update -q -o DPkg::Lock::Timeout=300 || [ "$1" -eq 0 ]; }

# What the environment depends on; .venv/setup-stamp holds it once all is installed and imports.
fingerprint() {
    {
        "$python" -VV
        echo "$venv $extras"
        sed '/^\[tool\.ruff\]/,$d' "$root/pyproject.toml" # settings of the checkers come after the dependencies
        cat "$root"/{constraints.txt,scripts/setup.sh,scripts/ryu-build-constraints.txt}
    } | sha256sum | cut -d' ' -f1
}

# One that was once complete, still imports and has this Python is brought up to date; any other is made anew, because
# pip takes a package for installed of which an interrupted run left only a part.
make_venv() {
    local version='import sys; print(sys.version)'
    if [ ! -e "$venv/setup-stamp" ] || ! imports || [ "$("$venv/bin/python" -c "$version")" != "$("$python" -c "$version")" ]; then
        "$python" -m venv --clear "$venv"
    fi
    rm -f "$venv/setup-stamp"
    pip install pip setuptools
}

pip() { "$venv/bin/python" -m pip "$1" -q -c "$root/constraints.txt" "${@:2}"; }

# Of the system's Python packages Mininet alone is let in: all of them would mix other versions into ours.
link_mininet() {
    ln -sfn /usr/lib/python3/dist-packages/mininet "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mininet"
}

# -B: run by root, in a repository that is the user's.
imports() { "$venv/bin/python" -B "$root/scripts/preflight.py"; }

install_ryu() { pip install --use-pep517 --build-constraint "$root/scripts/ryu-build-constraints.txt" ryu; }

install_python() { pip install --no-build-isolation -e "$root$extras"; }

# Under sudo the environment belongs to whoever owns the repository.
give_back() { chown -R --reference="$root" "$venv"; }

[ "$(id -u)" -eq 0 ] || refuse "needs root: run \`sudo $root/scripts/setup.sh\`"
command -v apt-get >/dev/null || refuse 'needs apt-get: only Debian and Ubuntu are supported; on others use the Vagrantfile'
trap finish EXIT
exec 9<"$root/scripts/setup.sh"
flock 9

remove_policy
up_to_date=false
if [ -x "$python" ] && [ "$(cat "$venv/setup-stamp" 2>/dev/null)" = "$(fingerprint)" ]; then up_to_date=true; fi
packages
"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' ||
    refuse "$("$python" -V) at $python: the pinned packages are for Python 3.10 to 3.13"
stamp=$(fingerprint)
if ! "$up_to_date" || ! imports >"$log" 2>&1; then
    step 'virtual environment .venv' make_venv
    step 'Ryu' install_ryu
    step 'Python packages' install_python
    link_mininet
    step 'imports' imports
    give_back
    echo "$stamp" >"$venv/setup-stamp"
fi
echo 'setup: ready. Next: sudo python3 run_topo.py'
