"""RoCEv2 as a user runs it: what spraying, congestion control and queue pairs do to real packets.

A busy machine slows all of it down; what is asserted are counters, and differences that load does not turn round.
"""

import json
import re
from pathlib import Path

import pytest

from tests.emulation.commands import run_topo
from tests.emulation.test_run import rows, sent

# 20 Mbit/s as written: four hosts of one leaf send to the four of the other, over four spines.
_SHIFT = (
    "--topology", "spine-leaf:spines=4,leaves=2,hosts_per_leaf=4", "--scale", "1", "--link-rate", "20Mbit",
    "--collective", "group_shift", "--group-size", "4", "--transport", "rocev2",
)  # fmt: skip
# Eight hosts send to one at 400 Gbit/s; here that is 10 Mbit/s, and a hardware microsecond 0.25 ms.
_INCAST = (
    "--topology", "spine-leaf:spines=1,leaves=3,hosts_per_leaf=4", "--ranks", "9", "--scale", "40000:160", "--queue", "64",
    "--collective", "incast", "--transport", "rocev2", "--path-mtu", "2048",
)  # fmt: skip


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
    """With the published constants. Without it eight windows meet in front of one link, whose queue cannot hold them."""
    alone = row(tmp_path / "none", "64M", *_INCAST)
    # 8 x 64 packets of 2106 bytes are 1.08 MB, the queue holds 0.58 MB.
    assert int(alone["dropped_fabric"]) > (8 * 64 * 2106 - 64 * 9014) / 2106 / 2
    assert int(alone["retransmits"]) >= int(alone["dropped_fabric"])
    assert (alone["cnps"], alone["dropped_host"]) == ("0", "0")
    assert "full queues dropped " in alone["reason"]
    held = row(tmp_path / "dcqcn", "64M", *_INCAST, "--congestion-control", "dcqcn", "--ecn-threshold", "20us")
    assert int(held["cnps"]) > 8 * 3
    assert int(held["dropped_fabric"]) < int(alone["dropped_fabric"]) / 10


@pytest.mark.slow
def test_credits_keep_an_incast_from_dropping(tmp_path: Path) -> None:
    """The queue of 577 kB holds 34 packets of each of eight; congestion control is not asked."""
    row_ = row(tmp_path / "credits", "64M", *_INCAST, "--lossless", "credits")
    assert [row_[name] for name in ("dropped_fabric", "dropped_host", "retransmits", "cnps")] == ["0"] * 4
    manifest = json.loads((tmp_path / "credits" / "manifest.json").read_text())
    assert manifest["machine"]["rocev2_lossless"] == "end-to-end credits in place of PFC, 33 to 33 packets each"


@pytest.mark.slow
def test_more_queue_pairs_slow_a_permutation_down_as_published(tmp_path: Path) -> None:
    """The mean slowdown of 8 hosts on 2 leaves and 4 spines is 2.40, 1.68, 1.33 and 1.24 with 1, 4, 16 and 32 queue pairs each.
    Of one queue pair each seed gives 2 or 3: two seeds' mean; of more a seed that by prediction lies within 6 % of the
    mean. Live there is load as well. The queues hold every window."""
    published = {1: 2.40, 4: 1.68, 16: 1.33, 32: 1.24}
    alone_s = 2**21 * 8 / 20e6 * 4154 / 4096
    for qps, expected in published.items():
        runs = [
            row(tmp_path / f"{qps}-{seed}", "2M", *_SHIFT, "--qps", str(qps), "--seed", str(seed))
            for seed in ((3, 7) if qps == 1 else (3,))
        ]
        assert all((r["dropped_fabric"], r["dropped_host"]) == ("0", "0") for r in runs)
        predicted, measured = (
            sum(float(r[name]) for r in runs) / len(runs) / alone_s for name in ("predicted_s", "time_s")
        )
        assert predicted == pytest.approx(expected, rel=0.07)
        assert measured == pytest.approx(expected, rel=0.2)
    used = {link: n for link, n in sent(tmp_path / "32-3").items() if link.startswith("leaf1->spine")}
    # 8 MiB by four links, and headers.
    assert len(used) == 4 and min(used.values()) > 2**20


@pytest.mark.slow
def test_what_a_udp_blaster_loses_is_said_and_nothing_else(tmp_path: Path) -> None:
    """Four into one at 20 Mbit/s: the queue takes 0.29 MB of 4 MB and sends on a quarter of what comes."""
    where = (
        "--topology",
        "spine-leaf:spines=1,leaves=2,hosts_per_leaf=4",
        "--ranks",
        "5",
        "--scale",
        "1",
        "--queue",
        "32",
    )
    what = (
        "--link-rate",
        "20Mbit",
        "--collective",
        "incast",
        "--transport",
        "udp",
        "-b",
        "1M",
        "-e",
        "1M",
        "-n",
        "1",
        "-w",
        "0",
    )
    done = run_topo(*where, *what, "--out", str(tmp_path / "udp"), cwd=tmp_path)
    assert done.status in (0, 1), done.err
    (found,) = rows(tmp_path / "udp")
    assert (found["wrong"], found["algbw_gbytes_s"], found["jct_ratio"], found["retransmits"]) == ("", "", "", "0")
    assert 0.2 < float(found["delivered"]) < 0.5
    assert int(found["dropped_fabric"]) > 100
    assert "of the data arrived" in found["reason"]
    table_row = next(line for line in done.out.splitlines() if line.lstrip().startswith("1048576"))
    assert table_row.split()[8] == "N/A"


@pytest.mark.slow
def test_udp_that_nothing_drops_is_right(tmp_path: Path) -> None:
    where = ("--topology", "spine-leaf:spines=1,leaves=2,hosts_per_leaf=1", "--scale", "1", "--link-rate", "20Mbit")
    found = row(tmp_path / "udp", "1M", *where, "--transport", "udp")
    assert (found["delivered"], found["dropped_fabric"], found["dropped_host"]) == ("1.0", "0", "0")


@pytest.mark.slow
@pytest.mark.parametrize("packets_per_s", [100, 2_000, 20_000])
def test_a_packet_rate_that_was_asked_for_is_kept_or_said_not_to_be(tmp_path: Path, packets_per_s: int) -> None:
    """64 KiB are 64 packets of 1024 bytes, which are 1082 on the wire: the last begins 63 intervals after the first, less the
    2 ms that a late sender may make up for."""
    where = ("--topology", "spine-leaf:spines=1,leaves=2,hosts_per_leaf=1", "--scale", "1", "--link-rate", "400Mbit")
    rate = f"{packets_per_s * 1082 * 8}bit"
    what = ("--collective", "sendrecv", "--transport", "rocev2", "--path-mtu", "1024", "--rate-limit", rate)
    found = row(tmp_path / "paced", "64K", *where, *what)
    assert float(found["time_s"]) > 63 / packets_per_s - 0.002
    (kept,) = re.findall(r"senders kept ([\d.]+) of the rate that was asked for", found["reason"])
    assert float(kept) < 1.1
    if abs(float(kept) - 1) > 0.05:
        assert found["verdict"] == "invalid"
    assert (found["retransmits"], found["dropped_fabric"], found["dropped_host"]) == ("0", "0", "0")
