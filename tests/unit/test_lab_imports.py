"""A schedule of the user's own in a collective's place, on the command line; and ours written for others."""

import json
from pathlib import Path

import numpy as np
import pytest

import traffic
from lab import cli
from lab.planning.experiment import load
from lab.planning.forecast import forecast_of
from lab.planning.plan import plan
from lab.planning.scale import Scale
from tests.unit.chakra_traces import collective, trace
from traffic.formats import FORMATS, UNSIZED, split_spec
from traffic.formats.goal import read_goal
from traffic.formats.msccl_export import to_msccl
from traffic.formats.source import Source

# 0 sends 1 MB to 1, which passes half of it on to 2.
CHAIN = """num_ranks 3
rank 0 {
a: send 1000000b to 1
}
rank 1 {
a: recv 1000000b from 0
b: send 500000b to 2
b requires a
}
rank 2 {
a: recv 500000b from 1
}
"""


@pytest.fixture
def chain(tmp_path: Path) -> str:
    (tmp_path / "chain.goal").write_text(CHAIN)
    return str(tmp_path / "chain.goal")


def test_a_schedule_runs_with_the_sizes_of_its_file(chain: str) -> None:
    planned = plan(load(None, {"schedule": chain}))
    assert (planned.experiment.collective, planned.algorithm, planned.ranks) == ("messages", "chain.goal", 3)
    (size,) = planned.sizes(Scale())
    # Rank 1 has the fullest buffer, 1.5 MB; the most in one direction is 1 MB.
    assert (size.size_bytes, size.count) == (1_000_000, 375_000)
    assert planned.message_bytes(size.count).tolist() == [1_000_000, 500_000]
    # 1 MB at 400 Gbit/s.
    assert planned.cut.seconds(1_000_000) == pytest.approx(20e-6)
    assert planned.algo_factor == 1.0


def test_sizes_that_are_asked_for_scale_it(chain: str) -> None:
    planned = plan(load(None, {"schedule": chain, "min_bytes": "4M", "max_bytes": "4M"}))
    (size,) = planned.sizes(Scale())
    assert size.size_bytes == 4 << 20
    assert planned.message_bytes(size.count).tolist() == [4 << 20, 2 << 20]


def test_the_prediction_is_of_both_messages(chain: str) -> None:
    """At 400 Mbit/s 20 ms for the first, 10 for the second: rank 0 is done within 20, when the kernel has taken the last of it,
    the others after 30, and the mean over ranks counts. Headers and switches add less than a tenth."""
    planned, scale = plan(load(None, {"schedule": chain})), Scale(rate_scale=1000)
    (size,) = planned.sizes(Scale())
    found = forecast_of(planned, scale).prediction(size, scale)
    assert found is not None and 60e-3 / 3 < found.seconds < 88e-3 / 3
    assert 1_000_000 < found.bytes_by_intf["h1-eth0"] < 1_010_000
    assert 500_000 < found.bytes_by_intf["h2-eth0"] < 510_000


def test_a_schedule_without_sizes_keeps_the_experiments(tmp_path: Path) -> None:
    file = tmp_path / "mine.xml"
    file.write_text(to_msccl(traffic.schedule("all_reduce", "ring", 4)))
    ours, theirs = (plan(load(None, more)) for more in ({"ranks": "4"}, {"schedule": f"msccl:{file}"}))
    assert (theirs.experiment.collective, theirs.algorithm) == ("all_reduce", "mine.xml")
    assert theirs.sizes(Scale()) == ours.sizes(Scale())
    count = ours.sizes(Scale())[0].count
    assert theirs.message_bytes(count).tolist() == ours.message_bytes(count).tolist()
    assert theirs.cut == ours.cut


def test_a_trace_of_several_collectives_runs_as_one(tmp_path: Path) -> None:
    """One all-reduce of 4 MB in each of two pairs: each rank sends and receives it once."""
    file = tmp_path / "pass.txt"
    file.write_text(
        "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 all_gpus: 4\n1\na -1 0 ALLREDUCE 4000000 0 NONE 0 0 NONE 0 0\n"
    )
    planned = plan(load(None, {"schedule": str(file)}))
    (size,) = planned.sizes(Scale())
    assert (planned.experiment.collective, planned.ranks, size.size_bytes) == ("trace", 4, 4_000_000)
    assert np.bincount(planned.schedule.src, planned.message_bytes(size.count)).tolist() == [4e6] * 4
    assert planned.cut.seconds(4e6) == pytest.approx(80e-6)


def test_a_trace_has_a_file_for_each_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1, 2):
        (tmp_path / f"job.{rank}.et").write_bytes(trace(collective(1, 0, 4_000_000)))
    (tmp_path / "other.0.et").write_bytes(b"")
    for spec in ("job.0.et", "job.et", "chakra:job"):
        format_, colon, name = spec.rpartition(":")
        planned = plan(load(None, {"schedule": f"{format_}{colon}{tmp_path / name}"}))
        assert (planned.algorithm, planned.ranks) == ("job.et", 3)
    (tmp_path / "job.1.et").unlink()
    assert cli.main(["predict", "--schedule", str(tmp_path / "job.0.et")]) == 2
    assert "there is no job.1.et: a trace has a file for each rank, from 0 on" in capsys.readouterr().err
    assert cli.main(["predict", "--schedule", str(tmp_path / "none.et")]) == 2
    assert "there is no none.0.et" in capsys.readouterr().err


def test_predict_shows_it_and_export_writes_it(chain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", "--schedule", chain]) == 0
    assert "3 ranks, messages chain.goal" in capsys.readouterr().out
    assert cli.main(["predict", "--schedule", chain, "--json"]) == 0
    assert [row["size_bytes"] for row in json.loads(capsys.readouterr().out)] == [1_000_000]
    assert cli.main(["export", "--schedule", chain, "--format", "goal", "--file", str(tmp_path / "out.goal")]) == 0
    back = read_goal(Source("out.goal", (tmp_path / "out.goal").read_bytes()))
    assert (back.elements(375_000) * 4).tolist() == [1_000_000, 500_000]
    assert cli.main(["export", "--ranks", "4", "-b", "4K", "-e", "4K", "--format", "goal"]) == 0
    assert capsys.readouterr().out.count("send 1024b") == 2 * 3 * 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--schedule", "mine"],
            "schedule 'mine': write FORMAT:FILE, with one of the formats",
        ),
        (["--schedule", "cobol:mine"], "unknown format 'cobol': choose from"),
        (["--schedule", "goal:nowhere"], "schedule 'nowhere': cannot be read: No such file or directory"),
        (["--schedule", "goal:."], "schedule '.': cannot be read: Is a directory"),
        (
            ["--schedule", "{chain}", "--ranks", "4"],
            "--ranks 4: chain.goal has 3 ranks: leave it out, or use --ranks 3",
        ),
        (
            ["--schedule", "{chain}", "--algorithm", "ring"],
            "algorithm (--algorithm) is not for a schedule of your own, whose file says what is sent: leave one of them out",
        ),
        (
            ["--schedule", "{chain}", "--topology", "spine-leaf:leaves=1,hosts_per_leaf=2"],
            "3 ranks do not fit on 2 hosts: use at most 2",
        ),
        (["--schedule", "{chain}", "-b", "1"], "-b 1B leaves messages over 3 ranks nothing to send"),
    ],
)
def test_a_refusal_is_one_line_and_status_2(
    chain: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["predict", *(a.format(chain=chain) for a in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"run_topo.py: {says}") and err.count("\n") == 1


def test_messages_of_no_bytes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.goal").write_text("num_ranks 2\nrank 0 {\nsend 0b to 1\n}\nrank 1 {\nrecv 0b from 0\n}\n")
    assert cli.main(["predict", "--schedule", str(tmp_path / "a.goal"), "-b", "4K", "-e", "4K"]) == 2
    assert capsys.readouterr().err == "run_topo.py: a.goal sends messages of 0 bytes alone: a run needs one with more\n"


def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.goal").write_text("num_ranks 2\nrank 0 {\nsend all\n}\n")
    assert cli.main(["predict", "--schedule", str(tmp_path / "bad.goal")]) == 2
    assert capsys.readouterr().err == (
        "run_topo.py: bad.goal:3: 'send all' is not read: write send Nb to R, recv Nb from R, calc N, a requires b or "
        "a irequires b\n"
    )


def test_an_experiment_file_may_name_a_schedule(chain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[traffic]\nschedule = "{chain}"\n')
    assert plan(load(file)).sizes(Scale())[0].size_bytes == 1_000_000
    file.write_text(f'[traffic]\nschedule = "{chain}"\ncollective = "broadcast"\n')
    assert cli.main(["predict", str(file)]) == 2
    assert "collective (--collective) is not for a schedule of your own" in capsys.readouterr().err


def test_a_format_is_known_by_name_or_ending() -> None:
    assert split_spec("goal:a.xml") == ("goal", "a.xml")
    assert split_spec("dir.d/a.xml") == ("msccl", "dir.d/a.xml")
    assert split_spec("C:a.goal") == ("goal", "C:a.goal")
    assert set(UNSIZED) <= set(FORMATS)


def test_a_files_workload_and_a_schedule_clash(chain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[workload]\nworkload = "llama2-7b"\n')
    assert cli.main(["predict", str(file), "--schedule", chain]) == 2
    assert "both say what is sent: leave one of them out" in capsys.readouterr().err
