"""Where the project's own files are."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
