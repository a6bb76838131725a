"""What users of emulators have reported of generated traffic, asked of ours: frames above the MTU, rates above the link's, frames
that leave by the machine's own card, and numbers of a machine that could not keep up."""

import socket
import threading
from pathlib import Path

import pytest

from tests.emulation.commands import run_topo
from tests.emulation.test_run import rows
from traffic.capture.dissect import dissect
from traffic.capture.frame import Frame
from traffic.capture.pcapng import read

_ETH_P_ALL = 3
_MTU = 1500
# Two hosts that send to each other over a switch each.
_PAIR = ("--topology", "spine-leaf:spines=1,leaves=2,hosts_per_leaf=1", "--collective", "sendrecv", "--scale", "1")


def only_row(folder: Path, *arguments: str) -> dict[str, str]:
    done = run_topo(*arguments, "-n", "1", "-w", "0", "--out", str(folder), cwd=folder.parent, deadline_s=170)
    assert done.status in (0, 1), done.err
    (found,) = rows(folder)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp", "rocev2", "udp"])
@pytest.mark.parametrize("delay", ["0ms", "10ms"])
def test_no_frame_is_above_the_mtu_and_no_rate_above_the_link(tmp_path: Path, transport: str, delay: str) -> None:
    """Segments that a card would cut are charged and queued as one where there is no card. 2 MiB at 10 Mbit/s take 1.68 s without
    a header; a link that has been idle owes its burst of 2 ms, or a frame."""
    folder = tmp_path / "pair"
    what = ("--link-rate", "10Mbit", "--mtu", str(_MTU), "-b", "2M", "-e", "2M", "--transport", transport)
    found = only_row(folder, *_PAIR, *what, "--delay", delay, "--pcap", "h1,leaf1->spine1")
    assert (found["wrong"], found["delivered"]) == ("0", "1.0")
    assert float(found["time_s"]) > 2**21 * 8 / 10e6
    captures = [c for file in folder.glob("*.pcapng") for c in read(file.read_bytes(), file.name)]
    assert len(captures) == 2 and all(c.frames and not c.missed for c in captures)
    assert max(frame.n_bytes for c in captures for frame in c.frames) <= _MTU + 14


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["rocev2", "udp"])
def test_frames_leave_by_their_hosts_interface_and_by_no_other(tmp_path: Path, transport: str) -> None:
    """Everything that passes any interface of this machine meanwhile is looked at."""
    outside = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    outside.settimeout(0.2)
    seen: list[Frame] = []
    ended = threading.Event()

    def listen() -> None:
        while not ended.is_set():
            try:
                frame = outside.recv(65_535)
            except TimeoutError:
                continue
            seen.append(Frame(0, frame[:128], len(frame)))

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        folder = tmp_path / "pair"
        what = ("--link-rate", "20Mbit", "-b", "1M", "-e", "1M", "--transport", transport, "--pcap", "h1")
        found = only_row(folder, *_PAIR, *what)
    finally:
        ended.set()
        listener.join()
        outside.close()
    assert found["wrong"] == "0"
    assert [s for s in map(dissect, seen) if s and s.src.startswith(("198.18.", "198.19."))] == []
    (capture,) = read((folder / "h1-eth0.pcapng").read_bytes(), "h1")
    own = [frame for frame in capture.frames if frame.outgoing]
    # 256 packets of 4096 bytes, or 117 of 8964.
    assert len(own) >= 117
    assert len({frame.data[6:12] for frame in own}) == 1
    assert {s.src for s in map(dissect, own) if s} == {"198.18.0.1"}


@pytest.mark.slow
def test_what_the_machine_cannot_carry_is_no_result(tmp_path: Path) -> None:
    """Eight hosts at 1 Gbit/s each: no machine of a few cores forwards 8 Gbit/s of packets that one process makes."""
    fabric = ("--topology", "spine-leaf:spines=2,leaves=2,hosts_per_leaf=4", "--scale", "1", "--link-rate", "1Gbit")
    what = ("--collective", "all_to_all", "--transport", "rocev2", "-b", "16M", "-e", "16M")
    found = only_row(tmp_path / "all", *fabric, *what)
    assert found["wrong"] == "0"
    assert found["verdict"] == "invalid"
    assert "CPU-limited" in found["reason"]
