"""`--pcap` and `inspect` as a user has them: files that Wireshark's own tools read, a table that a run's results confirm."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.commands import run_topo
from tests.emulation.test_run import rows

# A ring over four hosts: each sends 6 messages of a quarter of 1 MiB, which are 64 packets of 4096 bytes.
_FABRIC = ("--topology", "spine-leaf:spines=1,leaves=2,hosts_per_leaf=2", "--scale", "1", "--link-rate", "20Mbit")
_RING = (*_FABRIC, "--transport", "rocev2", "-b", "1M", "-e", "1M", "-n", "1", "-w", "0")
_MESSAGES, _PACKETS = 6, 6 * 64
_HOSTS = ("h1", "h2", "h3", "h4")


def captured(folder: Path, *arguments: str) -> dict[str, str]:
    """The run's row, its values right."""
    done = run_topo(*arguments, "--out", str(folder), cwd=folder.parent)
    assert done.status in (0, 1), done.err
    (found,) = rows(folder)
    assert found["wrong"] == "0"
    return found


def inspected(folder: Path, *files: str) -> list[dict[str, Any]]:
    done = run_topo("inspect", "--json", *(str(folder / file) for file in files), cwd=folder)
    assert done.status == 0, done.err
    found: list[dict[str, Any]] = json.loads(done.out)["flows"]
    return found


def data(flows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [flow for flow in flows if flow["n_bytes"]]


@pytest.mark.slow
def test_a_capture_has_every_packet_of_a_host_and_of_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    captured(folder, *_RING, "--pcap", "h1,h2,leaf1->spine1")
    (h1_up,) = [f for f in data(inspected(folder, "h1-eth0.pcapng")) if f["key"]["src"] == "198.18.0.1"]
    counts = ("packets", "messages", "n_bytes", "resent", "out_of_order", "missing")
    assert [h1_up[name] for name in counts] == [_PACKETS, _MESSAGES, _PACKETS * 4096, 0, 0, 0]
    files = sorted(file.name for file in folder.glob("*.pcapng"))
    assert len(files) == 3 and {"h1-eth0.pcapng", "h2-eth0.pcapng"} < set(files)
    # h2 sends over the spine: from its NIC to the uplink at 20 Mbit/s a frame of 4154 bytes takes 1.66 ms at least.
    (over,) = [f for f in data(inspected(folder, *files)) if len(f["points"]) == 2 and f["points"][0] == "h2-eth0"]
    assert over["points"][1].startswith("leaf1-")
    assert over["missing"] == 0 and over["delay_us"][0] > 0
    table = run_topo("inspect", *(str(folder / file) for file in files), cwd=tmp_path)
    assert table.out.splitlines()[0].split()[:4] == ["flow", "QP", "packets", "bytes"]


@pytest.mark.slow
def test_what_was_sent_again_is_what_the_transport_says(tmp_path: Path) -> None:
    folder = tmp_path / "lossy"
    found = captured(folder, *_RING, "--reliability", "selective", "--loss", "1%", "--pcap", ",".join(_HOSTS))
    files = [f"{host}-eth0.pcapng" for host in _HOSTS]
    # At each sender's own NIC: put together, the table would take figures of the receivers as well.
    resent = 0
    for i, file in enumerate(files, 1):
        own = [f for f in data(inspected(folder, file)) if f["key"]["src"] == _address(folder, i - 1)]
        resent += sum(f["resent"] for f in own)
    # Losses are made at egress, before the shaper and so before the tap: a packet lost at its own host is not seen there.
    assert 0 < resent <= int(found["retransmits"])
    assert int(found["retransmits"]) > 0


def _address(folder: Path, rank: int) -> str:
    """Of a rank's NIC, from the fabric in the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    host = manifest["ranks"][rank]
    ports = [p for link in manifest["fabric"]["graph"]["links"] for p in (link["a"], link["b"]) if p["node"] == host]
    return str(ports[0]["ip"])


@pytest.mark.slow
@pytest.mark.needs("tshark", "capinfos")
def test_wiresharks_tools_read_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    captured(folder, *_RING, "--pcap", "h1")
    file = str(folder / "h1-eth0.pcapng")
    told = subprocess.run(["capinfos", "-TmcEl", file], capture_output=True, text=True, check=True, timeout=60).stdout
    names, values = (line.split(",") for line in told.splitlines()[:2])
    assert dict(zip(names, values, strict=True))["File encapsulation"] == "ether"
    fields = ("frame.interface_name", "infiniband.bth.opcode", "_ws.malformed", "frame.len")
    command = ["tshark", "-nr", file, "-T", "fields", "-E", "separator=|", *(a for f in fields for a in ("-e", f))]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    lines = [line.split("|") for line in shown.splitlines()]
    assert {interface for interface, *_ in lines} == {"h1-eth0"}
    assert not any(malformed for _, _, malformed, _ in lines)
    # First, middle, last, only and acknowledgement: both ways of a ring in which each host has one flow out and one in.
    data_packets = [line for line in lines if int(line[1]) in (6, 7, 8, 10)]
    assert {int(opcode) for _, opcode, *_ in lines} <= {6, 7, 8, 10, 17}
    assert len(data_packets) == 2 * _PACKETS
    # Cut, but the length is that of the whole frame: 4096 bytes and 14 + 20 + 8 + 12 + 4 of headers.
    assert max(int(length) for *_, length in lines) == 4154 + 16


@pytest.mark.slow
def test_tcp_is_captured_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "tcp"
    captured(folder, *_FABRIC, "-b", "1M", "-e", "1M", "-n", "1", "-w", "0", "--pcap", "h1")
    (out,) = [f for f in data(inspected(folder, "h1-eth0.pcapng")) if f["key"]["src"] == "198.18.0.1"]
    assert (out["key"]["proto"], out["n_bytes"]) == (6, 6 * 2**18)


def test_a_point_that_is_not_there_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = run_topo(*_RING, "--pcap", "h9", "--out", str(tmp_path / "none"), cwd=tmp_path)
    assert done.status == 2
    assert done.err.startswith("run_topo.py: --pcap 'h9' is no host and no link of spine-leaf: ")
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "none").exists()
