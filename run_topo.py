#!/usr/bin/env python3
"""Start here: `sudo python3 run_topo.py`. Whatever Python runs this file, the work is done by the one in .venv."""

import os
import sys

ROOT = os.path.dirname(os.path.realpath(__file__))
VENV = os.path.join(ROOT, ".venv")
# Set across the exec, so that an environment that does not take effect cannot make a loop.
GUARD = "AI_FABRIC_TESTBED_ENTERED"


def enter_environment(script: str = __file__) -> None:
    """Become .venv's interpreter, running the same script; return when that is the one already running."""
    entered = os.environ.pop(GUARD, None)
    if os.path.realpath(sys.prefix) == os.path.realpath(VENV):
        return
    python = os.path.join(VENV, "bin", "python")
    if entered is None and os.access(python, os.X_OK):
        os.environ[GUARD] = "1"
        # Meant for the interpreter that is left behind; ours would not find its own library under it.
        os.environ.pop("PYTHONHOME", None)
        os.execv(python, [python, os.path.realpath(script), *sys.argv[1:]])
    refuse("no working environment in " + VENV)


def refuse(reason: str) -> None:
    setup = os.path.join(ROOT, "scripts", "setup.sh")
    sys.stderr.write("run_topo.py: " + reason + ": run `sudo " + setup + "` first\n")
    sys.exit(2)


if __name__ == "__main__":
    enter_environment()
    try:
        from lab.cli import main
    except ModuleNotFoundError as error:
        refuse(sys.executable + " cannot import " + str(error.name))
    sys.exit(main(sys.argv[1:]))
