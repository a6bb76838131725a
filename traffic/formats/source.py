"""A file of a user's own as text, and refusals that name its line. What is read here was written by others: sizes are bounded
before anything is made of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from traffic.errors import TrafficError

# More than any schedule that a run could carry out needs.
MAX_FILE_BYTES = 64 << 20
MAX_OPERATIONS = 2_000_000
MAX_RANKS = 1024
# Of all ranks' buffers together; the check holds a bit of each rank for each.
MAX_CHUNKS = 1 << 22
MAX_MESSAGE_BYTES = 1 << 40
# A day.
MAX_CALC_NS = 86_400 * 10**9
_SHOWN = 60


@dataclass(frozen=True)
class Source:
    """name: of the file, in refusals and in results; data: what is in it."""

    name: str
    data: bytes

    def text(self) -> str:
        """Raises TrafficError for what is no text."""
        self.require_size()
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise self.refusal(line, "is not text in UTF-8: give the file itself, not an archive of it") from None

    def require_size(self) -> None:
        if len(self.data) > MAX_FILE_BYTES:
            raise TrafficError(
                f"{self.name}: {len(self.data)} bytes are too many: use a file of {MAX_FILE_BYTES} or fewer"
            )
        if not self.data.strip():
            raise TrafficError(f"{self.name}: is empty")

    def lines(self, comment: str) -> Iterator[tuple[int, str]]:
        """Number and text of the lines that say something; comment: what begins one that does not."""
        for number, line in enumerate(self.text().splitlines(), 1):
            stripped = line.strip()
            if stripped and not stripped.startswith(comment):
                yield number, stripped

    def refusal(self, line: int, what: str) -> TrafficError:
        return TrafficError(f"{self.name}:{line}: {what}")

    def whole(self, line: int, what: str, text: str, least: int, most: int) -> int:
        """A whole number within bounds, both included."""
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
        if number is None or not least <= number <= most:
            raise self.refusal(line, f"{what} {shown(text)} must be a whole number from {least} to {most}")
        return number


def shown(text: str) -> str:
    """What others wrote, short enough for a line."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
