"""What must be over before an operation that a file puts after others, in the words of a schedule.

A schedule's receiver does nothing: what a file calls "received, and everything before it done" is a message's arrival and those
things. So what a later operation waits for is a set of numbers. Of one connection only the last of a set counts, as messages
leave and arrive in the order in which they stand.
"""

from traffic.schedule import Connection

# ("in" or "out", connection) or ("local", number) -> the operation's number.
Progress = dict[tuple[str, Connection | int], int]


def arrived(connection: Connection, number: int) -> Progress:
    return {("in", connection): number}


def left(connection: Connection, number: int) -> Progress:
    return {("out", connection): number}


def done(number: int) -> Progress:
    """Of a local operation."""
    return {("local", number): number}


def both(*parts: Progress) -> Progress:
    merged: Progress = {}
    for part in parts:
        for key, number in part.items():
            merged[key] = max(number, merged.get(key, number))
    return merged


def numbers(progress: Progress, connection: Connection | None = None) -> list[int]:
    """To wait for; connection: of the send that waits, whose earlier sends have left anyway."""
    return sorted({number for key, number in progress.items() if key != ("out", connection)})
