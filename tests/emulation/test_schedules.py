"""A schedule of the user's own on a real fabric: two leaves, two hosts each, 20 Mbit/s, and every byte where it belongs."""

import csv
from pathlib import Path

import pytest

from tests.emulation.commands import fabric, run_topo

# 250 000 bytes to the next rank, and when they are there half of them to the one after; the last waits for both.
GOAL = """num_ranks 4
rank 0 {
a: send 250000b to 1
b: recv 1000b from 3
}
rank 1 {
a: recv 250000b from 0
b: send 125000b to 2
b requires a
}
rank 2 {
a: recv 125000b from 1
b: send 125000b to 3
b requires a
}
rank 3 {
a: recv 125000b from 2
b: send 1000b to 0
b requires a
}
"""
# Two exchange their buffers and add what comes, in one thread block each: what comes early must wait.
STEPS = """<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"/>
<step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"/>"""
MSCCL = f"""<algo name="exchange" ngpus="2" nchunksperloop="1" coll="allreduce" inplace="1">
<gpu id="0" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">{STEPS}</tb></gpu>
<gpu id="1" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">{STEPS}</tb></gpu></algo>"""


@pytest.mark.parametrize(
    ("name", "text", "collective", "ranks", "size", "more"),
    [
        ("chain.goal", GOAL, "messages", 4, 250_000, []),
        ("exchange.xml", MSCCL, "all_reduce", 2, 200_000, ["-b", "200000", "-e", "200000"]),
    ],
)
def test_a_file_runs_as_a_collective_does(
    name: str, text: str, collective: str, ranks: int, size: int, more: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    options = ["--schedule", name, *more, "-n", "1", "-w", "1", "--out", str(tmp_path / "out")]
    done = run_topo(*fabric(spines=2, hosts_per_leaf=2), *options, cwd=tmp_path)
    assert done.status in (0, 1), done.err
    with (tmp_path / "out" / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["collective"], row["algorithm"], row["wrong"]) == (collective, name, "0")
    assert (int(row["ranks"]), int(row["size_bytes"])) == (ranks, size)
    assert float(row["time_s"]) > 0 and float(row["predicted_s"]) > 0
