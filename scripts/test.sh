#!/usr/bin/env bash
# Set up what is missing, check everything, run every test. As root; on a machine with nothing installed too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$(id -u)" -eq 0 ] || { echo "test.sh: needs root: run \`sudo $PWD/scripts/test.sh\`" >&2; exit 2; }

# bounded LIMIT COMMAND...: with a deadline; what hangs is ended, and the status says so.
bounded() {
    local limit=$1 status=0
    timeout --kill-after=30s "$limit" "${@:2}" || status=$?
    [ "$status" -ne 124 ] || echo "test.sh: not done after $limit: ${*:2}" >&2
    return "$status"
}

# What needs no root runs as the owner of the repository, so that no cache in it belongs to root.
owner=$(stat -c %u .)
as_owner=()
[ "$owner" -eq 0 ] || as_owner=(setpriv --reuid="$owner" --regid="$(stat -c %g .)" --clear-groups env HOME=/nonexistent)

SETUP_WITHOUT_DEV='' bounded 30m scripts/setup.sh
bounded 10m "${as_owner[@]}" scripts/check.sh
bounded 20m "${as_owner[@]}" .venv/bin/python -m pytest --numprocesses=auto tests/unit
PYTHONDONTWRITEBYTECODE=1 bounded 40m .venv/bin/python -m pytest -p no:cacheprovider tests/emulation

# In a machine of its own, because this kernel may lack what these tests need.
status=0
bounded 30m scripts/vm.sh test || status=$?
[ "$status" -ne 77 ] || { echo 'test.sh: skipped: tests/vm, for the reason above' && exit; }
exit "$status"
