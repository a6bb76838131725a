"""The command line's refusals, the port check, and the client against a server that plays the controller."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from controller import POLICIES, client
from controller.__main__ import main
from controller.listening import check_free, owner
from controller.rest import parsed
from topologies.errors import Refused
from topologies.ocs_leaf import OcsLeaf
from topologies.spine_leaf import SpineLeaf

ROOT = Path(__file__).resolve().parents[2]
DARK = "choose from 2d-mems, 3d-mems, patch-panel, piezo, rotor, or give its dark time, such as 25ms or 20us+5ms~1ms"


def controller(*arguments: str) -> tuple[int, str]:
    """Exit status and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "controller", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def fabric_file(tmp_path: Path) -> str:
    file = tmp_path / "fabric.json"
    file.write_text(SpineLeaf().build().to_json())
    return str(file)


def test_a_file_that_is_no_fabric_is_refused_in_one_line(tmp_path: Path) -> None:
    status, text = controller("--fabric", str(tmp_path / "none.json"))
    assert status == 2 and text == f"controller: --fabric {tmp_path}/none.json: No such file or directory\n"
    (tmp_path / "odd.json").write_text('{"hosts": 3}')
    status, text = controller("--fabric", str(tmp_path / "odd.json"))
    assert status == 2 and "not a fabric file" in text and text.count("\n") == 1


def test_an_unknown_policy_is_refused_in_one_line(fabric_file: str) -> None:
    status, text = controller("--fabric", fabric_file, "--policy", "best")
    assert status == 2
    assert text == f"controller: unknown policy 'best': choose from {', '.join(sorted(POLICIES))}\n"


def test_circuits_from_the_start_need_a_device_and_a_list(tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.json"
    fabric.write_text(OcsLeaf().build().to_json())
    circuits = tmp_path / "circuits.json"
    circuits.write_text('{"leaf1": "leaf2"}')
    given = ("--fabric", str(fabric), "--circuits", str(circuits))
    assert controller(*given) == (2, "controller: --circuits: say with --dark what device sets them\n")
    wanted = f"controller: --circuits {circuits} must be a list, such as ['leaf1:5 - leaf2:5', 'leaf3 > leaf4']\n"
    assert controller(*given, "--dark", "10ms") == (2, wanted)


def test_a_policy_that_does_not_fit_the_fabric_is_refused_in_one_line(fabric_file: str) -> None:
    status, text = controller("--fabric", fabric_file, "--policy", "minimal")
    assert status == 2 and text.count("\n") == 1
    assert text.startswith(
        "controller: policy 'minimal' does not fit fabric spine-leaf: choose from adaptive, ecmp, ecmp-group, "
    )


def test_circuits_without_an_optical_switch_are_refused_in_one_line(fabric_file: str) -> None:
    status, text = controller("--fabric", fabric_file, "--dark", "25ms")
    assert status == 2
    assert text == "controller: fabric spine-leaf has no optical switch: use ocs-leaf or ocs-dragonfly\n"
    status, text = controller("--fabric", fabric_file, "--dark", "25ms", "--policy", "single-path")
    assert (status, text) == (2, "controller: --dark routes over circuits: leave out --policy and --flows\n")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--port", "7000", "--rest-port", "7000"), "--port and --rest-port are both 7000: switches and REST need one each"),
        (("--listen", ""), "an empty address to listen on: use 127.0.0.1, or 0.0.0.0 for every interface"),
        (("--dark", "soon"), f"unknown optical switch 'soon': {DARK}"),
        (("--dark", ""), f"unknown optical switch '': {DARK}"),
        (("--dark", "-5ms"), "argument --dark: expected one argument"),
        (("--seed", "x"), "argument --seed: invalid int value: 'x'"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], fabric_file: str, options: tuple[str, ...], text: str
) -> None:
    assert main(["--fabric", fabric_file, *options]) == 2
    assert capsys.readouterr().err == f"controller: {text}\n"


def test_a_policy_that_fails_is_refused_in_one_line(fabric_file: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def POLICY(fabric, down):\n    return 1 / 0\n")
    status, text = controller("--fabric", fabric_file, "--policy", f"{tmp_path}/mine.py:POLICY")
    assert status == 2 and text == "controller: policy POLICY failed: ZeroDivisionError: division by zero\n"


def test_an_installation_that_does_not_fit_is_refused_in_one_line(fabric_file: str, tmp_path: Path) -> None:
    (tmp_path / "ryu.py").write_text("raise ImportError(\"cannot import name 'X' from 'eventlet'\")")
    done = subprocess.run(
        [sys.executable, "-m", "controller", "--fabric", fabric_file, "--port", "0", "--rest-port", "0"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "controller: Ryu cannot be imported: cannot import name 'X' from 'eventlet'; "
        "scripts/setup.sh installs versions that fit\n"
    )


def test_a_port_in_use_names_its_owner() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert owner(port) == os.getpid()
        with pytest.raises(Refused) as refusal:
            check_free("127.0.0.1", port)
    reason = f"Address already in use (process {os.getpid()}"
    assert str(refusal.value).startswith(f"cannot listen on 127.0.0.1 port {port}: {reason}")
    check_free("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70000), ("192.0.2.1", 6653)])
def test_an_address_or_port_that_cannot_be_is_refused(host: str, port: int) -> None:
    with pytest.raises(Refused, match=f"cannot listen on {host} port {port}"):
        check_free(host, port)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[" + b" " * 2**20 + b"]"])
def test_a_body_that_cannot_be_read_is_the_senders_error(body: bytes) -> None:
    """Answered with status 400 and the text, as every ValueError is."""
    with pytest.raises(ValueError, match=r"\S") as error:
        parsed(body)
    assert str(error.value) and "\n" not in str(error.value)


# -- the client -----------------------------------------------------------------------------------------------------

STATUS: dict[str, Any] = {
    "ready": False,
    "connected": 1,
    "switches": 2,
    "missing": ["leaf2"],
    "refused": False,
    "last_error": None,
}


@contextmanager
def answering(*statuses: dict[str, Any]) -> Iterator[str]:
    """A server whose /status gives these in turn, the last one for ever."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(left.pop(0) if len(left) > 1 else left[0]).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_wait_ready_returns_the_first_ready_status() -> None:
    with answering(STATUS, STATUS, {**STATUS, "ready": True}) as url:
        assert client.wait_ready(url, 5, poll_s=0.001)["ready"]


def test_wait_ready_says_who_is_missing() -> None:
    with answering(STATUS) as url, pytest.raises(client.ControllerError) as error:
        client.wait_ready(url, 0.05, poll_s=0.01)
    assert str(error.value) == "controller not ready after 0.05 s: 1/2 switches, missing: leaf2"


def test_wait_ready_gives_up_at_once_when_a_rule_was_refused() -> None:
    refused = {**STATUS, "refused": True, "last_error": "leaf1 refused: add-flow ..."}
    with answering(refused) as url, pytest.raises(client.ControllerError, match="leaf1 refused: add-flow"):
        client.wait_ready(url, 60)


def test_nobody_there() -> None:
    with pytest.raises(client.ControllerError, match="no controller answers at http://127"):
        client.wait_ready("http://127.0.0.1:9", 0.05)
    with pytest.raises(client.ControllerError, match=r"controller at http://127\.0\.0\.1:9/links: "):
        client.links("http://127.0.0.1:9", 1)
