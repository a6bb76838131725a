"""Doors between a sandbox and its host, opened on purpose: byte relays that run in the parent process.

A controller of the user's own sits on the host and Open vSwitch inside: Open vSwitch dials a unix socket in its run
directory, which the parent has bound from outside, and every connection is carried on to the controller. The other way
round, the lab's REST API is published on the host's loopback only when asked.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from lab.errors import LabError
from lab.machine.sandbox import CONTROLLER_SOCKET, Sandbox
from topologies import syscalls

_CONNECT_TIMEOUT_S = 3.0
Address = tuple[str, int]


def require_listening(address: Address) -> None:
    """Refuse a controller that does not answer, before anything is built."""
    try:
        socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise LabError(
            f"no controller answers at tcp:{address[0]}:{address[1]} ({error}): start it first, or leave out --controller"
        ) from None


def controller_door(address: Address) -> Callable[[Sandbox], None]:
    """The relay from the sandbox's `controller.sock` to a controller on the host."""

    def open_door(sandbox: Sandbox) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(sandbox.path(CONTROLLER_SOCKET)))
        listener.listen(128)
        _serve(listener, lambda: socket.create_connection(address, _CONNECT_TIMEOUT_S))

    return open_door


def published_port(port: int, inside_port: int) -> Callable[[Sandbox], None]:
    """Publish a TCP port of the sandbox's loopback on the host's loopback. Binds at once; refuses a taken port."""
    if not 0 < port < 2**16:
        raise LabError(f"--publish {port}: no such port, use 1 to 65535")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        raise LabError(f"cannot publish on 127.0.0.1:{port}: {error.strerror}; use another --publish PORT") from None
    listener.listen(16)

    def open_door(sandbox: Sandbox) -> None:
        _serve(listener, lambda: _connect_inside(sandbox, inside_port))

    return open_door


def _connect_inside(sandbox: Sandbox, port: int) -> socket.socket:
    """A socket belongs to the namespace it is made in, and setns is per thread: so a thread of its own makes it."""
    made: list[socket.socket] = []

    def make() -> None:
        with suppress(OSError):
            syscalls.enter_namespace(f"/proc/{sandbox.init_pid}/ns/net", syscalls.CLONE_NEWNET)
            made.append(socket.create_connection(("127.0.0.1", port), _CONNECT_TIMEOUT_S))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise OSError("the sandbox does not answer")
    return made[0]


def _serve(listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
    def accept() -> None:
        while True:
            near, _ = listener.accept()
            try:
                far = connect()
            except OSError:
                near.close()
                continue
            for s in (near, far):
                s.settimeout(None)
                if s.family == socket.AF_INET:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for s in (source, sink):
        with suppress(OSError):
            s.shutdown(socket.SHUT_RDWR)


def controller_target(controller: str | None, own_port: int) -> str:
    """What Open vSwitch dials inside the sandbox: our own controller, or the relay to the user's."""
    return f"tcp:127.0.0.1:{own_port}" if controller is None else f"unix:{CONTROLLER_SOCKET}"
