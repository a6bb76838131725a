#!/usr/bin/env bash
# Does the testbed work on this machine? What it has, a fabric with a controller and a ping, and a run of one row.
# As root, after scripts/setup.sh; changes nothing. Under a minute; several on a software-emulated CPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
smallest=(--topology spine-leaf:spines=1,leaves=2,hosts_per_leaf=1 --scale 1 --link-rate 5Mbit)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# step TEXT SAYS ARGUMENTS...: run_topo.py with them has to say SAYS. Status 1, a row that is invalid, is no failure here:
# this machine was too busy for a valid number, and the testbed said so.
step() {
    local started=$SECONDS status=0
    printf 'self-test: %s ... ' "$1"
    timeout 300 python3 run_topo.py "${@:3}" >"$scratch/log" 2>&1 || status=$?
    if [ "$status" -gt 1 ] || ! grep -q -e "$2" "$scratch/log"; then
        printf 'failed\n'
        cat "$scratch/log" >&2
        echo "self_test.sh: failed at: $1 (exit $status)" >&2
        exit 1
    fi
    printf 'ok, %d s\n' $((SECONDS - started))
}

step 'what this machine has' '^a run is possible' doctor </dev/null
grep -e ' Open vSwitch ' -e ' qdisc netem ' "$scratch/log"
step 'a controller, and a ping between two hosts' ' 0% packet loss' cli "${smallest[@]}" <<<'h1 ping -c 3 -W 5 h2'
step 'a run of one row' 'Out of bounds values : 0 OK' \
    "${smallest[@]}" -b 600K -e 600K -n 1 -w 0 --out "$scratch/out" </dev/null
grep -e ' size ' -e ' float ' -e ' is degraded: ' -e ' is invalid: ' "$scratch/log"
echo 'self-test: passed'
