"""RoCEv2 as a user runs it: what spraying, congestion control and queue pairs do to real packets.

A busy machine slows all of it down; what is asserted are counters, and differences that load does not turn round.
"""

from pathlib import Path

import pytest

from tests.emulation.commands import run_topo
from tests.emulation.test_run import rows, sent

# 20 Mbit/s as written: four hosts of one leaf send to the four of the other, over four spines.
_SHIFT = (
    "--topology", "spine-leaf:spines=4,leaves=2,hosts_per_leaf=4", "--scale", "1", "--link-rate", "20Mbit",
    "--collective", "group_shift", "--group-size", "4", "--transport", "rocev2",
)  # fmt: skip
# Four hosts send to one at 400 Gbit/s; here that is 10 Mbit/s, and a hardware microsecond 0.4 ms.
_INCAST = (
    "--topology", "spine-leaf:spines=1,leaves=2,hosts_per_leaf=4", "--ranks", "5", "--scale", "40000:100",
    "--collective", "incast", "--transport", "rocev2", "--path-mtu", "2048",
)  # fmt: skip
# The published increases are for 40 Gbit/s; these find their rates within a few milliseconds at 400.
_QUICK_DCQCN = (
    "dcqcn:gain=0.125,additive_increase=10Gbit,hyper_increase=10Gbit,"
    "rate_timer=100us,min_rate=10Gbit,fast_recovery_steps=1"
)


def row(folder: Path, size: str, *arguments: str) -> dict[str, str]:
    """The one row of a run, its values right."""
    done = run_topo(*arguments, "-b", size, "-e", size, "-n", "1", "-w", "0", "--out", str(folder), cwd=folder.parent)
    assert done.status in (0, 1), done.err
    (found,) = rows(folder)
    assert found["wrong"] == "0"
    return found


@pytest.mark.slow
def test_spraying_breaks_go_back_n_and_not_selective_repeat(tmp_path: Path) -> None:
    """Packets overtake each other on paths of different length: who drops what comes early asks for nearly all of it again."""
    back, selective = (
        row(tmp_path / name, "1M", *_SHIFT, "--spread", "packet", "--reliability", name)
        for name in ("go-back-N", "selective")
    )
    # Eight messages of 1 MiB are 2048 packets of 4096 bytes.
    assert int(back["out_of_order"]) > 0 and int(selective["out_of_order"]) > 0
    assert int(back["naks"]) > 0
    assert int(back["retransmits"]) > 2048 / 4
    assert int(back["retransmits"]) > 2 * int(selective["retransmits"])
    uplinks = sent(tmp_path / "selective")
    used = [uplinks[f"leaf{leaf}->spine{spine}"] for leaf in (1, 2) for spine in (1, 2, 3, 4)]
    # 64 source ports over four paths: each gets its part of the 4 MiB that leave a leaf.
    assert min(used) > 4 * 2**20 / 4 / 3


@pytest.mark.slow
def test_dcqcn_keeps_an_incast_from_dropping(tmp_path: Path) -> None:
    """Without it four windows meet in front of one link, whose queue cannot hold them."""
    alone = row(tmp_path / "none", "128M", *_INCAST)
    assert int(alone["dropped_fabric"]) > 100
    assert int(alone["retransmits"]) >= int(alone["dropped_fabric"])
    assert (alone["cnps"], alone["dropped_host"]) == ("0", "0")
    assert "full queues dropped " in alone["reason"]
    held = row(tmp_path / "dcqcn", "128M", *_INCAST, "--congestion-control", _QUICK_DCQCN, "--ecn-threshold", "100us")
    assert int(held["cnps"]) > 0
    assert int(held["dropped_fabric"]) < int(alone["dropped_fabric"]) / 10
    assert float(held["jct_ratio"]) < float(alone["jct_ratio"])


@pytest.mark.slow
def test_more_queue_pairs_spread_a_permutation_better(tmp_path: Path) -> None:
    """Hosts that count queue pairs from one number use one uplink in each direction; with 32 each they use all four."""
    few, many = (tmp_path / qps for qps in ("1", "32"))
    one = row(few, "512K", *_SHIFT, "--reliability", "selective")
    all_ = row(many, "512K", *_SHIFT, "--reliability", "selective", "--qps", "32")
    used = [
        {link for link, n in sent(folder).items() if link.startswith("leaf1->spine") and n > 2**17}
        for folder in (few, many)
    ]
    assert [len(links) for links in used] == [1, 4]
    # Four messages one after the other.
    assert float(one["predicted_s"]) == pytest.approx(4 * 2**19 * 8 / 20e6 * 4154 / 4096, rel=0.05)
    assert float(all_["predicted_s"]) < float(one["predicted_s"]) / 2
    assert float(all_["time_s"]) < float(one["time_s"])
