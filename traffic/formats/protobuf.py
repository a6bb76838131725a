"""The little of protobuf's wire format that a Chakra trace needs (protobuf.dev/programming-guides/encoding), so that reading one
takes no package."""

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = 0
    for i in range(10):
        if at + i >= len(data):
            break
        value |= (data[at + i] & 0x7F) << (7 * i)
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise WireError("a number is cut off or has no end")


def messages(data: bytes) -> Iterator[bytes]:
    """Of a file of messages, each behind its length."""
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        if at + length > len(data):
            raise WireError("a message is cut off")
        yield data[at : at + length]
        at += length


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value: bytes of what has a length, else a number."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == _LENGTH:
            length, at = varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"there is a field of kind {kind}")
        if at + length > len(data):
            raise WireError("a field is cut off")
        raw = data[at : at + length]
        yield number, raw if kind == _LENGTH else int.from_bytes(raw, "little")
        at += length


def numbers(value: int | bytes) -> list[int]:
    """Of a repeated number: one of them, or several packed."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found
