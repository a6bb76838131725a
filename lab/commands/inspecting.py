"""`run_topo.py inspect FILE.pcapng...`: captures as a table of flows."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lab.errors import LabError
from traffic.capture import pcapng
from traffic.capture.flows import Flow, Flows, flows

_PROTOCOLS = {6: "tcp", 17: "udp"}
_HEADS = (
    "flow", "QP", "packets", "bytes", "messages", "resent", "missing", "reordered", "CE", "acks", "naks", "CNPs",
    "delay p50", "p99 (us)", "seen at",
)  # fmt: skip


def show(files: Sequence[str], *, as_json: bool) -> None:
    """Raises TrafficError for what is no pcapng, LabError for what cannot be read."""
    found = flows(capture for file in files for capture in pcapng.read(_read(file), file))
    print("\n".join(_document(found) if as_json else _table(found)))


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise LabError(f"{file} cannot be read: {error.strerror}") from None


def _document(found: Flows) -> list[str]:
    listed = [asdict(flow) | {"key": flow.key._asdict()} for flow in found.flows]
    return [json.dumps({"flows": listed, "other_frames": found.other_frames, "missed_frames": found.missed_frames})]


def _table(found: Flows) -> list[str]:
    rows = [_HEADS, *map(_row, found.flows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(_aligned(i, *cell) for i, cell in enumerate(zip(row, widths, strict=True))) for row in rows)
    notes = [
        *([f"{found.other_frames} frames are of no flow that is known here"] if found.other_frames else []),
        *([f"{found.missed_frames} frames passed and are not in the captures"] if found.missed_frames else []),
    ]
    return [*(line.rstrip() for line in lines), *notes]


def _aligned(column: int, text: str, width: int) -> str:
    """Names to the left, numbers to the right."""
    return text.ljust(width) if column in (0, len(_HEADS) - 1) else text.rjust(width)


def _row(f: Flow) -> tuple[str, ...]:
    k = f.key
    ports = str(f.src_ports[0]) if len(f.src_ports) == 1 else f"{len(f.src_ports)} ports"
    name = f"{_PROTOCOLS.get(k.proto, k.proto)} {k.src}:{ports} > {k.dst}:{k.dst_port}"
    counts = (f.packets, f.n_bytes, f.messages, f.resent, f.missing, f.out_of_order, f.ce, f.acks, f.naks, f.cnps)
    delays = ("", "") if f.delay_us is None else (f"{f.delay_us[1]:,.0f}", f"{f.delay_us[2]:,.0f}")
    qp = "" if k.qpn is None else f"{k.qpn:#08x}"
    return (name, qp, *(f"{n:,}" if n else "" for n in counts), *delays, " > ".join(f.points))
