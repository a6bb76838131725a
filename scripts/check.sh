#!/usr/bin/env bash
# Everything that is checked without running the program. The same for people, for pre-commit and for CI; needs no root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin
[ -x $bin/ruff ] || { echo 'check.sh: no tools in .venv: run `sudo scripts/setup.sh` first' >&2; exit 2; }

status=0
# check COMMAND...: goes on after a failure, so that one run shows everything.
check() { echo "== $*" && "$bin/$@" || status=1; }

check ruff check .
check ruff format --check .
check mypy
check lint-imports --no-logo
exit $status
