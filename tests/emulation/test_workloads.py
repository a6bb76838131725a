"""A training step on real links: Megatron's 3D split on rails, by link counters.

Two stages of two tensor parallel groups of four accelerators each, so that each group has a server to itself. A busy machine
may make a row less than `ok`; what is asserted here does not depend on the load.
"""

import csv
from pathlib import Path

import pandas as pd

from tests.emulation.commands import run_topo
from traffic.workloads.models import parse_model

MODEL = "llama2-7b:layers=2,sequence=1024,vocabulary=4096"
SCALE = 2000
MTU = 9000


def test_megatron_3d_keeps_each_axis_to_its_network(tmp_path: Path) -> None:
    """tp=4 inside the servers, dp=2 and pp=2 along the rails: no byte on a spine, and on a NIC exactly what the gradients and
    the stages' activations are."""
    topology = ("--topology", "rail-optimised:servers=4,gpus_per_server=4,spines=2,hb_rate_gbps=800")
    step = ("--workload", MODEL, "--split", "tp=4,pp=2,dp=2", "--training", "microbatches=2")
    run = ("--scale", f"20000:{SCALE}", "-n", "1", "-w", "0", "--out", str(tmp_path / "out"))
    done = run_topo(*topology, *step, *run, cwd=tmp_path)
    assert done.status in (0, 1), done.err
    with (tmp_path / "out" / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["collective"], row["algorithm"], row["wrong"]) == (MODEL, "tp=4,dp=2,pp=2", "0")
    assert "where the schedule sends" not in row["reason"]
    samples = pd.read_parquet(tmp_path / "out" / "links.parquet").groupby("link")["bytes_sent"]
    sent = {str(link): int(n) for link, n in (samples.max() - samples.min()).items()}

    assert sum(n for link, n in sent.items() if "spine" in link) == 0
    model = parse_model(MODEL)
    activations = 1024 * model.hidden * 2
    # A layer's quarter, whole norms, and of the first stage a quarter of the embedding, of the last one of the head and its norm.
    layer = (model.attention_weights + model.mlp_weights) // 4 + 2 * model.hidden
    ends = (4096 * model.hidden // 4, 4096 * model.hidden // 4 + model.hidden)
    stray = (2 + int(row["retransmits"])) * (MTU + 14)
    for server, stage in enumerate((0, 0, 1, 1), start=1):
        # All-reduce between two ranks: as many bytes as there are gradients; two microbatches to the other stage.
        payload = (4 * (layer + ends[stage]) + 2 * activations) / SCALE
        wire = payload * (MTU + 14 + 66 / 2) / (MTU - 52)
        for gpu in range(1, 5):
            # What each has sent, and acknowledgements of what it got.
            counted = sent[f"s{server}g{gpu}->leaf{gpu}"]
            assert abs(counted - wire) <= 0.05 * wire + stray, (server, gpu, counted, wire)
    assert sent["s1g1->hb1"] > 0
    for name in ("calc_s", "communication_s", "exposed_s"):
        assert 0 < float(row[name]) < float(row["time_s"]) * 1.01
    assert 0 < float(row["bubble"]) < 1 and 0 < float(row["parallel_efficiency"]) < 1
    assert float(row["time_s"]) >= 0.95 * float(row["calc_s"])
    assert "parallel efficiency" in done.out


def test_an_impossible_split_makes_nothing(tmp_path: Path) -> None:
    done = run_topo("--workload", MODEL, "--split", "tp=3", "--out", str(tmp_path / "out"), cwd=tmp_path)
    assert done.status == 2
    assert done.err.count("\n") == 1 and "is 3 ranks, not 16" in done.err
    assert list(tmp_path.iterdir()) == []
