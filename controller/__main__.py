"""`python -m controller --fabric FILE.json --policy NAME`: the controller process.

It has its own entry because `ryu-manager` no longer starts with current versions of eventlet. Exit status: 0 ended by
SIGTERM or SIGINT, 2 refused before anything was listening, with one line that says why.
"""

import argparse
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, get_args

from controller import POLICIES, Policy, policy_for, rules_of
from controller.circuits.device import DEVICES, InTheDark, Manner, parse_device
from controller.circuits.plan_file import circuits_from_data
from controller.circuits.routing import OverCircuits
from controller.circuits.uplinks import check_radix, uplinks
from controller.demand import from_plain, merged
from controller.listening import check_free
from controller.policy import Announced
from topologies.errors import Refused
from topologies.fabric import Fabric

_DEFAULT_POLICY = "ecmp"
_PLACING = sorted(name for name, known in POLICIES.items() if isinstance(known, Announced))

log = logging.getLogger("controller")


class _Parser(argparse.ArgumentParser):
    """argparse, but a refusal is one line."""

    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def arguments() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m controller", description="Programs the switches of a fabric.")
    parser.add_argument("--fabric", required=True, help="the fabric, as `run_topo.py describe --json` writes it")
    parser.add_argument(
        "--policy",
        default=_DEFAULT_POLICY,
        help=f"{', '.join(POLICIES)}, or ./mine.py:POLICY (default {_DEFAULT_POLICY})",
    )
    parser.add_argument(
        "--dark",
        help=f"route over circuits, set by REST, that are dark while they change: {', '.join(DEVICES)}, or a time",
    )
    parser.add_argument(
        "--circuits", help="circuits that are set from the start, as PUT /circuits takes them: a JSON file"
    )
    parser.add_argument(
        "--in-the-dark", choices=get_args(InTheDark), default="drop", help="what packets meet meanwhile (default drop)"
    )
    parser.add_argument(
        "--make-before-break", action="store_true", help="set new circuits before old ones go, where ports allow"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the optical switches' jitter (default 0)")
    parser.add_argument("--flows", help="flows to place from the start, as POST /flows takes them: a JSON file")
    parser.add_argument("--listen", default="127.0.0.1", help="address for switches and REST (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=6653, help="OpenFlow port (default 6653)")
    parser.add_argument("--rest-port", type=int, default=8080, help="REST port (default 8080)")
    return parser


def main(argv: list[str] | None = None) -> int:
    try:
        run(arguments().parse_args(argv))
    except Refused as error:
        print(f"controller: {error}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT. Raises Refused."""
    fabric = read_fabric(options.fabric)
    manner = None if options.dark is None else manner_of(options, fabric)
    if manner:
        options.policy = "circuits"
    if options.circuits and not manner:
        raise Refused("--circuits: say with --dark what device sets them")
    chosen = (
        over_circuits(options, fabric) if manner else with_flows(policy_for(options.policy, fabric), fabric, options)
    )
    # A policy that cannot do this fabric is refused now, not when the first switch connects.
    rules_of(chosen, fabric)
    if options.port == options.rest_port != 0:
        raise Refused(f"--port and --rest-port are both {options.port}: switches and REST need one each")
    check_free(options.listen, options.port)
    check_free(options.listen, options.rest_port)
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.WARNING)
    log.setLevel(logging.INFO)
    ryu = import_ryu()
    wait = stop_signal(ryu.eventlet)
    start(ryu, options, fabric, chosen, manner)
    log.info("%s on %s: OpenFlow %d, REST %d", fabric.name, options.listen, options.port, options.rest_port)
    wait()
    log.info("stopped; the switches keep their rules")


def manner_of(options: argparse.Namespace, fabric: Fabric) -> Manner:
    """How circuits are changed; refused where the fabric has none, or where another option means something else."""
    if options.policy != _DEFAULT_POLICY or options.flows is not None:
        raise Refused("--dark routes over circuits: leave out --policy and --flows")
    manner = Manner(parse_device(options.dark), options.in_the_dark, options.make_before_break, options.seed)
    uplinks(fabric)
    check_radix(fabric, manner.device)
    return manner


def over_circuits(options: argparse.Namespace, fabric: Fabric) -> Policy:
    """Routing over those that are set from the start, none without `--circuits`."""
    if options.circuits is None:
        return OverCircuits({})
    try:
        data = json.loads(Path(options.circuits).read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"--circuits {options.circuits}: {getattr(error, 'strerror', None) or error}") from error
    return OverCircuits(circuits_from_data(data, uplinks(fabric), f"--circuits {options.circuits}"))


def read_fabric(path: str) -> Fabric:
    try:
        return Fabric.from_json(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"--fabric {path}: {getattr(error, 'strerror', None) or error}") from error
    except Refused as error:
        raise Refused(f"--fabric {path}: {error}") from error


def with_flows(chosen: Policy, fabric: Fabric, options: argparse.Namespace) -> Policy:
    """The policy with the flows of `--flows`, if there are any."""
    if options.flows is None:
        return chosen
    if not isinstance(chosen, Announced):
        raise Refused(f"--flows: policy {options.policy} places no announced flows: choose from {', '.join(_PLACING)}")
    try:
        return chosen.announced(fabric, merged((), from_plain(json.loads(Path(options.flows).read_text()))))
    except (OSError, ValueError) as error:
        raise Refused(f"--flows {options.flows}: {getattr(error, 'strerror', None) or error}") from error


def start(
    ryu: Any,
    options: argparse.Namespace,
    fabric: Fabric,
    chosen: Policy,
    manner: Manner | None,
) -> None:
    """Bring up Ryu: the OpenFlow listener, our application, the REST server; all run in green threads. manner: how
    circuits are changed, None = not at all."""
    ryu.cfg.CONF(args=[], project="ryu", default_config_files=[])
    ryu.cfg.CONF.set_override("ofp_listen_host", options.listen)
    ryu.cfg.CONF.set_override("ofp_tcp_listen_port", options.port)
    ryu.cfg.CONF.set_override("wsapi_host", options.listen)
    ryu.cfg.CONF.set_override("wsapi_port", options.rest_port)
    manager = ryu.AppManager.get_instance()
    manager.load_apps(["controller.app"])
    contexts = manager.create_contexts()
    manager.instantiate_apps(fabric=fabric, policy=chosen, policy_name=options.policy, manner=manner, **contexts)
    ryu.hub.spawn(ryu.wsgi.start_service(manager))


def import_ryu() -> Any:
    """Ryu and eventlet. An installation where the two do not fit each other is refused in one line."""
    try:
        from controller import ryu_compat
    except (ImportError, AttributeError) as error:
        raise Refused(f"Ryu cannot be imported: {error}; scripts/setup.sh installs versions that fit") from error
    return ryu_compat


def stop_signal(eventlet: Any) -> Callable[[], object]:
    """Install handlers for SIGTERM and SIGINT; the result waits, in green, until one has come.

    A handler cannot end the wait itself: epoll is resumed after it (PEP 475). The wake-up descriptor's byte can.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    green = eventlet.greenio.GreenSocket(receiver)
    return lambda: (green.recv(1), sender)


if __name__ == "__main__":
    sys.exit(main())
