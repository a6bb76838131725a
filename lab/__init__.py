"""One experiment: read it, build its fabric in a sandbox, run it, judge it, write it down."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
