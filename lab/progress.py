"""What the terminal shows while something takes longer than a moment. Goes to stderr: stdout carries results."""

import sys
import time

from lab import terminal


class Progress:
    """`step()` names what happens now; on a terminal the line is overwritten, in a log each step is a line."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._tty = sys.stderr.isatty()
        self.started = time.monotonic()
        self._shown = ""

    def step(self, text: str) -> None:
        if self.quiet or text == self._shown:
            return
        self._shown = text
        line = self.line(text)
        terminal.write(f"\r\033[K{line}" if self._tty else f"{line}\n", sys.stderr)

    def line(self, text: str) -> str:
        """With the seconds since the start."""
        return f"[{time.monotonic() - self.started:5.1f} s] {text}"

    def done(self) -> None:
        """Clear the line, so that what follows starts clean."""
        if self._tty and self._shown and not self.quiet:
            terminal.write("\r\033[K", sys.stderr)
        self._shown = ""
