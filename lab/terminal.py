"""What is said on standard output and error: a reader who has enough, or a full disk, costs the text and nothing else."""

import os
import sys
from typing import TextIO


def show(*lines: str) -> None:
    """Lines on standard output, at once."""
    write("".join(f"{line}\n" for line in lines), sys.stdout)


def warn(*lines: str) -> None:
    """Lines on standard error."""
    write("".join(f"{line}\n" for line in lines), sys.stderr)


def write(text: str, stream: TextIO) -> None:
    """The text, at once. A stream that takes no more is given up, and standard error says so of a full disk."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        discard(stream)
    except OSError as error:
        discard(stream)
        if stream is not sys.stderr:
            warn(f"run_topo.py: {error.strerror}: the rest of the output is lost")


def discard(stream: TextIO) -> None:
    """What is still buffered must not fail at exit, nor what comes."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
