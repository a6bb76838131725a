"""A program for `run_topo.py exec`: each rank sends to the next and receives from the one before, round after round."""

import os
import socket
import sys
import threading
import time

_PORT = 5000
_BYTES = 100_000


def main(seconds: float) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with socket.create_server(("", _PORT)) as server:
        following = _connected(f"h{(rank + 1) % ranks + 1}")
        before, _ = server.accept()
        end = time.monotonic() + seconds
        go_on = True
        while go_on:
            # The first rank says when it is over: with the last byte of a round.
            go_on = rank != 0 or time.monotonic() < end
            heard = _round(following, before, go_on if rank == 0 else None)
            go_on = go_on and heard


def _round(following: socket.socket, before: socket.socket, go_on: bool | None) -> bool:
    """go_on: what the first rank says; the others pass on what they hear."""
    if go_on is None:
        heard = _received(before)
        following.sendall(bytes(_BYTES - 1) + heard)
        return heard == b"1"
    sender = threading.Thread(target=following.sendall, args=(bytes(_BYTES - 1) + (b"1" if go_on else b"0"),))
    sender.start()
    heard = _received(before)
    sender.join()
    return heard == b"1"


def _received(before: socket.socket) -> bytes:
    data = bytearray()
    while len(data) < _BYTES:
        chunk = before.recv(_BYTES - len(data))
        if not chunk:
            raise SystemExit("the rank before has ended")
        data += chunk
    return bytes(data[-1:])


def _connected(host: str) -> socket.socket:
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((host, _PORT), timeout=30)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main(float(sys.argv[1]))
