"""A record's tables for parquet. Pure; the columns' types are the dataclasses' own, also of a table without rows."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lab.rows import (
    BALANCE_COLUMNS,
    CIRCUIT_COLUMNS,
    CPU_COLUMNS,
    ITERATION_COLUMNS,
    LINK_COLUMNS,
    LINK_TOTAL_COLUMNS,
    ROW_COLUMNS,
    SPAN_COLUMNS,
    SPAN_KINDS,
    CircuitRecord,
    CpuSamples,
    GroupBalance,
    IterationRecord,
    LinkSamples,
    LinkTotal,
    RankSpans,
    RowResult,
    RunRecord,
)

_TYPES = {int: pa.int64(), int | None: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
_LINK_SCHEMA = pa.schema(
    [
        ("at_s", pa.float64()),
        *((name, pa.string()) for name in ("intf", "link", "kind")),
        *((name, pa.int64()) for name in ("bytes_sent", "packets_sent", "queue_bytes", "queue_drops")),
    ]
)
_CPU_SCHEMA = pa.schema([("at_s", pa.float64()), ("component", pa.string()), ("cpu_s", pa.float64())])
_SPAN_SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in ("size_bytes", "iteration")),
        ("resolution_s", pa.float64()),
        ("rank", pa.int64()),
        ("kind", pa.string()),
        *((name, pa.float64()) for name in ("begin_s", "end_s")),
    ]
)
assert (
    tuple(_CPU_SCHEMA.names) == CPU_COLUMNS
    and tuple(_LINK_SCHEMA.names) == LINK_COLUMNS
    and tuple(_SPAN_SCHEMA.names) == SPAN_COLUMNS
)


def of(record: RunRecord) -> dict[str, pa.Table]:
    """By the name of the file."""
    always = {
        "results": row_table(record.rows),
        "iterations": _table(record.iterations, IterationRecord, ITERATION_COLUMNS),
        "links": link_table(record.links),
        "cpu": cpu_table(record.cpu),
        "link_totals": _table(record.link_totals, LinkTotal, LINK_TOTAL_COLUMNS),
        "balance": _table(record.balance, GroupBalance, BALANCE_COLUMNS),
        "spans": span_table(record.spans),
    }
    if record.circuit_totals:
        always["circuits"] = _table(record.circuits, CircuitRecord, CIRCUIT_COLUMNS)
    return always


def row_table(rows: Sequence[RowResult]) -> pa.Table:
    return _table(rows, RowResult, ROW_COLUMNS)


def _table(items: Sequence[object], record: type, names: Sequence[str]) -> pa.Table:
    columns = {name: [getattr(item, name) for item in items] for name in names}
    return pa.Table.from_pydict(columns, _schema(record, names))


def _schema(record: type, names: Iterable[str]) -> pa.Schema:
    types = record.__annotations__
    return pa.schema([(name, _TYPES.get(types[name], pa.string())) for name in names])


def span_table(spans: Sequence[RankSpans]) -> pa.Table:
    """Long form: one line per span."""
    parts = [_spans_of_row(one) for one in spans]
    return pa.concat_tables(parts) if parts else _SPAN_SCHEMA.empty_table()


def _spans_of_row(one: RankSpans) -> pa.Table:
    n = len(one.rank)
    kinds = pa.DictionaryArray.from_arrays(one.kind.astype(np.int32), pa.array(SPAN_KINDS)).cast(pa.string())
    constant = [np.full(n, one.size_bytes), np.full(n, one.iteration), np.full(n, one.resolution_s)]
    return pa.Table.from_arrays(
        [*map(pa.array, (*constant, one.rank)), kinds, pa.array(one.begin_s), pa.array(one.end_s)], schema=_SPAN_SCHEMA
    )


def link_table(windows: Sequence[LinkSamples]) -> pa.Table:
    """Long form: one line per sample and interface, interfaces in the fabric's order within a sample."""
    tables = [_link_window(w) for w in windows]
    return pa.concat_tables(tables) if tables else _LINK_SCHEMA.empty_table()


def _link_window(w: LinkSamples) -> pa.Table:
    samples, n = w.bytes_sent.shape
    places = np.tile(np.arange(n, dtype=np.int32), samples)
    columns = [
        pa.array(np.repeat(w.at_s, n)),
        *(
            pa.DictionaryArray.from_arrays(places, pa.array(names, pa.string())).cast(pa.string())
            for names in (w.intfs, w.links, w.kinds)
        ),
        pa.array(w.bytes_sent.reshape(-1)),
        pa.array(w.packets_sent.reshape(-1)) if w.packets_sent.size else pa.nulls(samples * n, pa.int64()),
        *(_at_samples(w, seen) for seen in (w.queue_bytes, w.queue_drops)),
    ]
    return pa.Table.from_arrays(columns, schema=_LINK_SCHEMA)


def _at_samples(w: LinkSamples, seen: NDArray[np.int64]) -> pa.Array:
    """What was read less often stands at the sample that followed it; null elsewhere, and where it was not seen."""
    found = np.full(w.bytes_sent.shape, -1, np.int64)
    at = np.searchsorted(w.at_s, w.queue_at_s)
    known = np.flatnonzero(at < len(w.at_s))
    if len(known):
        found[at[known]] = seen[known]
    return pa.array(found.reshape(-1), mask=found.reshape(-1) < 0)


def cpu_table(windows: Sequence[CpuSamples]) -> pa.Table:
    """Long form: one line per reading and component."""
    lines = [
        (at_s, name, cpu_s)
        for w in windows
        for at_s, row in zip(w.at_s.tolist(), w.cpu_s.tolist(), strict=True)
        for name, cpu_s in zip(w.components, row, strict=True)
    ]
    return pa.Table.from_pylist([dict(zip(CPU_COLUMNS, line, strict=True)) for line in lines], _CPU_SCHEMA)
