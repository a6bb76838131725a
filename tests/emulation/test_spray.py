"""Packets and flowlets of TCP spread over equal paths: on real links, counted by the spines' ports and by captures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from tests.emulation.commands import fabric as small_fabric
from tests.emulation.commands import run_topo, sizes
from tests.emulation.netns_sandbox import in_sandbox, network, sh
from tests.emulation.test_run import rows, sent
from tests.emulation.waiting import wait_for
from topologies.spine_leaf import SpineLeaf
from topologies.spread import Spread
from topologies.tcp import Tcp


def _audited() -> dict[str, Any]:
    made = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build().with_links(rate_mbps=100)
    with network(made, tcp=Tcp(spread=Spread("packet"))) as net:
        seen: dict[str, Any] = {"audit": [str(f) for f in net.audit()]}
        sh("tc filter del dev h1-eth0 ingress", "h1")
        seen["one"] = [str(f) for f in net.audit()]
        sh("tc qdisc del dev h2-eth0 clsact", "h2")
        seen["three"] = [str(f) for f in net.audit()]
    return seen


def test_the_audit_misses_a_program_that_was_taken_off() -> None:
    seen = in_sandbox(_audited)
    assert seen["audit"] == []
    restore, spray = ("program spray-restore should be attached, is none", "program spray should be attached, is none")
    assert seen["one"] == [f"h1-eth0: {restore}"]
    assert seen["three"] == [f"h1-eth0: {restore}", f"h2-eth0: {spray}", f"h2-eth0: {restore}"]


# -- the wire -------------------------------------------------------------------------------------------------------

_PORT, _BOUND, _BYTES = 5001, 10_000, 300_000
_RECEIVE = f"""
import socket
listener = socket.create_server(("", {_PORT}))
print("listening", flush=True)
accepted, peer = listener.accept()
got = bytearray()
while data := accepted.recv(1 << 16):
    got += data
print(peer[1], bytes(got) == bytes(range(250)) * {_BYTES // 250})
"""
_SEND = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {_PORT}), source_address=("", {_BOUND})) as s:
    s.sendall(bytes(range(250)) * {_BYTES // 250})
"""
# Writes what arrives on an interface, frame by frame, as a capture of its far end would have it.
_CAPTURE = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
s.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
s.bind((sys.argv[1], 0x800))
print("listening", flush=True)
s.settimeout(3)
try:
    while True:
        frame, address = s.recvfrom(10000)
        if address[2] != socket.PACKET_OUTGOING:
            print(frame.hex())
except TimeoutError:
    pass
"""


def _seen_on_the_wire() -> dict[str, Any]:
    made = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build().with_links(rate_mbps=200)
    with network(made, tcp=Tcp(spread=Spread("packet", entropy=8))) as net:
        sender, receiver = net.get("h1"), net.get("h2")
        leaf = made.peer(made.scale_out_port("h1")).intf
        written = Path("/run/capture")
        with written.open("w") as file:
            capture = subprocess.Popen(["python3", "-c", _CAPTURE, leaf], stdout=file)
        server = receiver.popen(["python3", "-c", _RECEIVE])
        wait_for(lambda: "listening" in written.read_text() and server.stdout.readline(), 5, "listeners")
        sh(f"python3 -c '{_SEND}' {receiver.IP()}", sender.name)
        said = server.communicate(timeout=20)[0].decode().split()
        capture.wait(timeout=20)
        return {"said": said, "frames": written.read_text().split()[1:]}


def test_the_wire_shows_many_ports_and_right_checksums_and_the_socket_its_own() -> None:
    """Scapy computes each frame's checksums again."""
    seen = in_sandbox(_seen_on_the_wire)
    assert seen["said"] == [str(_BOUND), "True"]
    frames = [Ether(bytes.fromhex(frame)) for frame in seen["frames"]]
    packets = [frame for frame in frames if TCP in frame and frame[TCP].dport == _PORT]
    # 34 segments of 8948 bytes and the connection's own.
    assert len(packets) > 34
    assert {packet[TCP].sport for packet in packets} == {_BOUND + i for i in range(8)}
    assert {(packet[IP].id, str(packet[IP].flags)) for packet in packets} == {(_BOUND, "DF+evil")}
    for packet in packets:
        again: Any = packet.copy()
        del again[IP].chksum, again[TCP].chksum
        assert bytes(again) == bytes(packet)


# -- whole runs -----------------------------------------------------------------------------------------------------

# Rank 0 sends 4 MiB to rank 1.
_PROGRAM = """
import os, socket, time
address = os.environ["MASTER_ADDR"], 4000
if os.environ["RANK"] == "0":
    with socket.create_server(("", 4000)) as listener:
        s, _ = listener.accept()
        with s:
            s.sendall(bytes(2**22))
            s.shutdown(socket.SHUT_WR)
            s.recv(1)
else:
    for attempt in range(100):
        try:
            s = socket.create_connection(address, source_address=("", 9999))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    with s:
        n = 0
        while data := s.recv(1 << 16):
            n += len(data)
        print(f"rank 1 got {n} bytes from port {s.getsockname()[1]}")
"""
# One flow in each direction, over two equal paths.
_PAIR = (*small_fabric(spines=2), "--collective", "sendrecv", *sizes("4M"))


def row(folder: Path, *arguments: str) -> dict[str, str]:
    """The one row of a run, its values right."""
    done = run_topo(*_PAIR, *arguments, "--out", str(folder), cwd=folder.parent)
    assert done.status in (0, 1), done.err
    (found,) = rows(folder)
    assert found["wrong"] == "0"
    return found


def uplinks(folder: Path) -> list[list[int]]:
    """Bytes that each leaf sent to each spine."""
    found = sent(folder)
    return [[found[f"leaf{leaf}->spine{spine}"] for spine in (1, 2)] for leaf in (1, 2)]


def test_one_flow_takes_one_path_unless_it_is_sprayed(tmp_path: Path) -> None:
    """4 MiB are 469 frames a flow. Of 1024 ports, hashed at random, those few take each path half of the time: 234 +- 11."""
    row(tmp_path / "flow")
    for leaf in uplinks(tmp_path / "flow"):
        assert min(leaf) == 0 and max(leaf) > 2**22
    sprayed = row(tmp_path / "packet", "--spread", "packet", "--entropy", "1024")
    for leaf in uplinks(tmp_path / "packet"):
        assert min(leaf) / sum(leaf) > 0.5 - 4 * 11 / 469
        assert sum(leaf) > 2**22
    assert int(sprayed["out_of_order"]) > 0
    assert f"spread by packet, packets overtook each other: {int(sprayed['out_of_order']):,} came" in sprayed["reason"]
    machine = json.loads((tmp_path / "packet" / "manifest.json").read_text())["machine"]
    assert (machine["tcp_spread"], machine["tcp_entropy"]) == ("packet", 1024)


def test_flowlets_change_their_path_with_pauses_only(tmp_path: Path) -> None:
    """Frames of 9014 bytes are 3.6 ms apart at 20 Mbit/s: longer than one gap, far shorter than the other."""
    row(tmp_path / "often", "--spread", "flowlet", "--flowlet-gap", "1ms")
    assert all(min(leaf) > 2**22 / 8 for leaf in uplinks(tmp_path / "often"))
    once = row(tmp_path / "once", "--spread", "flowlet", "--flowlet-gap", "1000s")
    # A connection's first packet comes after a pause; all others leave by the port of that one.
    assert all(min(leaf) < 2**22 / 100 for leaf in uplinks(tmp_path / "once"))
    # A busy machine may lose a frame; what follows it then comes early.
    assert once["out_of_order"] == "0" or int(once["retransmits"]) > 0


def test_a_program_of_the_users_own_is_sprayed_as_its_file_says(tmp_path: Path) -> None:
    experiment = tmp_path / "spray.toml"
    experiment.write_text(
        "[fabric]\ntopology = 'spine-leaf:spines=2,leaves=2,hosts_per_leaf=1'\nlink_rate = '20Mbit'\n"
        "[run]\nscale = '1'\n[traffic]\nspread = 'packet'\n"
    )
    program = tmp_path / "pair.py"
    program.write_text(_PROGRAM)
    done = run_topo("exec", str(experiment), "--out", "out", "--", sys.executable, str(program), cwd=tmp_path)
    assert "rank 1 got 4194304 bytes from port 9999" in done.out, done.err
    by_spine = [sent(tmp_path / "out")[f"leaf1->spine{spine}"] for spine in (1, 2)]
    assert min(by_spine) > 2**22 / 8
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["machine"]["tcp_spread"] == "packet"
    assert "spread by packet, packets overtook each other" in manifest["program"]["reason"]
