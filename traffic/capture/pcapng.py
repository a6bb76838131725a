"""Captures as pcapng (draft-ietf-opsawg-pcapng): written with one interface a file, read with any number. No I/O.

section header -- interface description -- enhanced packet ... -- interface statistics
"""

import struct
from collections.abc import Iterator, Mapping

from traffic.capture.frame import Capture, Frame
from traffic.errors import TrafficError

_SECTION, _INTERFACE, _PACKET, _STATISTICS = 0x0A0D0D0A, 1, 6, 5
_MAGIC, _ETHERNET = 0x1A2B3C4D, 1
# Options: of a section its writer; of an interface name and resolution of time; of a packet its flags; of statistics.
_USER_APPLICATION, _NAME, _RESOLUTION, _FLAGS, _RECEIVED, _DROPPED = 4, 2, 9, 2, 4, 5
_INBOUND, _OUTBOUND = 1, 2
_CLASSIC = {0xA1B2C3D4, 0xD4C3B2A1, 0xA1B23C4D, 0x4D3CB2A1}
_LEAST_BLOCK = 12


# -- writing ----------------------------------------------------------------------------------------------------------


def written(capture: Capture, snap_bytes: int) -> Iterator[bytes]:
    """The file in pieces. snap_bytes: how much of a frame there is at most."""
    section = struct.pack("<IHHq", _MAGIC, 1, 0, -1) + _option(_USER_APPLICATION, b"run_topo.py") + _END
    yield _block(_SECTION, section)
    # Times in units of 10^-9 s.
    interface = _option(_NAME, capture.point.encode()) + _option(_RESOLUTION, b"\x09") + _END
    yield _block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, snap_bytes) + interface)
    for frame in capture.frames:
        yield _block(_PACKET, _packet(frame))
    last_ns = capture.frames[-1].time_ns if capture.frames else 0
    counts = (
        _option(_RECEIVED, struct.pack("<Q", len(capture.frames) + capture.missed)),
        _option(_DROPPED, struct.pack("<Q", capture.missed)),
    )
    yield _block(_STATISTICS, struct.pack("<III", 0, last_ns >> 32, last_ns & 0xFFFFFFFF) + b"".join(counts) + _END)


def _packet(frame: Frame) -> bytes:
    head = struct.pack(
        "<IIIII",
        0,
        frame.time_ns >> 32,
        frame.time_ns & 0xFFFFFFFF,
        len(frame.data),
        max(frame.n_bytes, len(frame.data)),
    )
    flags = b""
    if frame.outgoing is not None:
        flags = _option(_FLAGS, struct.pack("<I", _OUTBOUND if frame.outgoing else _INBOUND)) + _END
    return head + _padded(frame.data) + flags


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + _LEAST_BLOCK)
    return struct.pack("<I", kind) + length + body + length


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)


_END = _option(0, b"")


# -- reading ----------------------------------------------------------------------------------------------------------


class _Interface:
    """What is known of one while a file is read."""

    def __init__(self, name: str, ns_per_unit: float) -> None:
        self.name, self.ns_per_unit = name, ns_per_unit
        self.frames: list[Frame] = []
        self.missed = 0


def read(data: bytes, name: str) -> list[Capture]:
    """Every Ethernet interface of a file. name: of the file, for refusals and for interfaces that have none.

    Raises TrafficError for what is no pcapng.
    """
    interfaces: list[_Interface | None] = []
    done: list[_Interface] = []
    for kind, order, body in _blocks(data, name):
        if kind == _SECTION:
            interfaces = []
        elif kind == _INTERFACE:
            interfaces.append(_interface(body, order, f"{name}#{len(interfaces)}"))
            done += [made for made in interfaces[-1:] if made]
        elif kind in (_PACKET, _STATISTICS) and len(body) >= 12:
            number = struct.unpack_from(order + "I", body)[0]
            at = interfaces[number] if number < len(interfaces) else None
            if at and kind == _PACKET:
                at.frames.append(_frame(body, order, at.ns_per_unit, name))
            elif at:
                dropped = dict(_options(body[12:], order)).get(_DROPPED, b"")
                at.missed = struct.unpack(order + "Q", dropped)[0] if len(dropped) == 8 else 0
    return [Capture(i.name, i.frames, i.missed) for i in done]


def _blocks(data: bytes, name: str) -> Iterator[tuple[int, str, bytes]]:
    """(type, byte order, body) of each."""
    if len(data) < _LEAST_BLOCK + 16 or struct.unpack_from("<I", data)[0] != _SECTION:
        if len(data) >= 4 and struct.unpack_from("<I", data)[0] in _CLASSIC:
            raise TrafficError(f"{name}: is a pcap, not a pcapng: editcap -F pcapng {name} NEW.pcapng makes one of it")
        raise TrafficError(f"{name}: is no pcapng: give what --pcap or Wireshark wrote")
    at, order = 0, "<"
    while at < len(data):
        if struct.unpack_from("<I", data, at)[0] == _SECTION:
            order = "<" if struct.unpack_from("<I", data, at + 8)[0] == _MAGIC else ">"
        kind, length = struct.unpack_from(order + "II", data, at)
        if length < _LEAST_BLOCK or length % 4 or at + length > len(data):
            # A capture that was cut off: what is before the cut is good.
            return
        yield kind, order, data[at + 8 : at + length - 4]
        at += length
        if len(data) - at < _LEAST_BLOCK:
            return


def _interface(body: bytes, order: str, unnamed: str) -> _Interface | None:
    """None for what is no Ethernet."""
    if struct.unpack_from(order + "H", body)[0] != _ETHERNET:
        return None
    options: Mapping[int, bytes] = dict(_options(body[8:], order))
    # Unsaid microseconds; the first bit says whether it is a power of two.
    code = options.get(_RESOLUTION, b"\x06")[0]
    seconds = 2.0 ** -(code & 0x7F) if code & 0x80 else 10.0**-code
    return _Interface(options.get(_NAME, unnamed.encode()).decode(errors="replace"), seconds * 1e9)


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(order + "HH", data, at)
        if not code:
            return
        yield code, data[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4


def _frame(body: bytes, order: str, ns_per_unit: float, name: str) -> Frame:
    if len(body) < 20:
        raise TrafficError(f"{name}: a packet block of {len(body)} bytes is too short: the file is damaged")
    _, high, low, captured, n_bytes = struct.unpack_from(order + "IIIII", body)
    units = high << 32 | low
    # Whole nanoseconds stay exact: a float has 53 bits, the time since 1970 61.
    time_ns = units if ns_per_unit == 1.0 else round(units * ns_per_unit)
    flags = dict(_options(body[20 + captured + -captured % 4 :], order)).get(_FLAGS, b"")
    direction = struct.unpack(order + "I", flags)[0] & 3 if len(flags) == 4 else 0
    return Frame(time_ns, body[20 : 20 + captured], n_bytes, {_INBOUND: False, _OUTBOUND: True}.get(direction))
