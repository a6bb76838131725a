#!/usr/bin/env python3
"""Start here: `sudo python3 run_topo.py`. Whatever Python runs this file, the work is done by the one in .venv."""

import os
import signal
import sys

ROOT = os.path.dirname(os.path.realpath(__file__))
VENV = os.path.join(ROOT, ".venv")
# Set across the exec, so that an environment that does not take effect cannot make a loop.
GUARD = "AI_FABRIC_TESTBED_ENTERED"


def open_standard_descriptors() -> None:
    """Started without one of them (`<&-`, `>&-`), we would give its number to some file or socket of ours."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, mode))  # noqa: SIM115


def end_at_once_when_interrupted() -> None:
    """Until `main` can say what an interrupt means, Ctrl-C ends us as it ends any program: without a traceback."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


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
        # The next interpreter would show a traceback until it comes to this file: it waits until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        os.execv(python, [python, os.path.realpath(script), *sys.argv[1:]])
    refuse("no working environment in " + VENV)


def refuse(reason: str) -> None:
    setup = os.path.join(ROOT, "scripts", "setup.sh")
    sys.stderr.write("run_topo.py: " + reason + ": run `sudo " + setup + "` first\n")
    sys.exit(2)


if __name__ == "__main__":
    end_at_once_when_interrupted()
    open_standard_descriptors()
    enter_environment()
    try:
        from lab.cli import main
    except ModuleNotFoundError as error:
        refuse(sys.executable + " cannot import " + str(error.name))
    sys.exit(main(sys.argv[1:]))
