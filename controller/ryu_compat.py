"""The one door to Ryu and eventlet: what Ryu 4.34 needs around it, and the names that we use, with types.

Ryu imports `eventlet.wsgi.ALREADY_HANDLED`, which eventlet dropped in 0.30.3: it must exist before Ryu is imported.
Both warn about their own age at import; that is not our user's concern. The sockets that Ryu opens are green by
construction, so the standard library is not monkey-patched.
"""

import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

# We are given addresses, not names: without its own DNS resolver eventlet imports in 0.1 s instead of 0.3 s.
os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import eventlet.wsgi

    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = object()

    from ryu import cfg
    from ryu.app import wsgi
    from ryu.base.app_manager import AppManager, RyuApp

    # Registers the options ofp_listen_host and ofp_tcp_listen_port.
    from ryu.controller import controller, ofp_event
    from ryu.controller.handler import (
        CONFIG_DISPATCHER,
        DEAD_DISPATCHER,
        HANDSHAKE_DISPATCHER,
        MAIN_DISPATCHER,
        set_ev_cls,
    )
    from ryu.lib import hub
    from ryu.ofproto import nicira_ext, ofproto_v1_3, ofproto_v1_3_parser
    from ryu.ofproto.ofproto_protocol import ProtocolDesc

_F = TypeVar("_F", bound=Callable[..., Any])


def on(events: Any, *states: str) -> Callable[[_F], _F]:
    """Marks a method as the handler of these event classes while the connection is in one of `states`."""
    decorator: Callable[[_F], _F] = set_ev_cls(events, list(states))
    return decorator


def http(method: str, path: str) -> Callable[[_F], _F]:
    """Marks a method as the answer to the HTTP method 'GET', 'POST' or 'DELETE' on `path`."""
    decorator: Callable[[_F], _F] = wsgi.route(f"{method} {path}", path, methods=[method])
    return decorator


__all__ = [
    "CONFIG_DISPATCHER",
    "DEAD_DISPATCHER",
    "HANDSHAKE_DISPATCHER",
    "MAIN_DISPATCHER",
    "AppManager",
    "ProtocolDesc",
    "RyuApp",
    "cfg",
    "controller",
    "eventlet",
    "http",
    "hub",
    "nicira_ext",
    "ofp_event",
    "ofproto_v1_3",
    "ofproto_v1_3_parser",
    "on",
    "wsgi",
]
