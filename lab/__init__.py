"""One experiment: read it, build its fabric in a sandbox, run it, judge it, write it down.

lab/cli.py is the way in for people, lab/api.py, whose names are here, for programs.
"""

from lab.api import describe, load, predict, read, run, sweep
from lab.errors import LabError

__all__ = ["LabError", "describe", "load", "predict", "read", "run", "sweep"]
