"""What the controller tells over HTTP, as JSON: GET /status, /fabric, /links, /policy, /ports, /flows and /rules[/SWITCH].

With optical switches: GET /circuits, and /circuits/history with the dark time of each that was set, and from when until when
it was up.

And what it is told: PUT /circuits sets circuits, all that there are from now on; PUT /plan begins a plan, DELETE /plan ends
it, GET /plan tells how far it is; POST /flows announces flows, DELETE /flows withdraws them, all or those in the body.
Each answers with what came of it.
"""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from controller.demand import Demand, from_plain, merged, to_plain, without
from controller.policy import Announced, Reactive
from controller.rules import SwitchRules
from controller.ryu_compat import http, wsgi
from topologies.errors import EmulationError, Refused, unknown

if TYPE_CHECKING:
    from controller.app import FabricApp
    from controller.ocs import CircuitChanger

# The circuits of 10 000 ports by name are a third of it.
MAX_BODY_BYTES = 2**20

_COUNTERS = tuple(f"{way}_{what}" for what in ("packets", "bytes", "dropped", "errors") for way in ("rx", "tx"))


# (announced so far, named in the request) -> announced from now on
_Change = Callable[[tuple[Demand, ...], tuple[Demand, ...]], tuple[Demand, ...]]


def register(application: Any, app: "FabricApp") -> None:
    """Mount the API on Ryu's WSGI application."""
    application.register(_Rest, {"app": app})


def _json(body: Any, status: int = 200) -> Any:
    return wsgi.Response(content_type="application/json", status=status, body=json.dumps(body).encode())


def parsed(body: bytes) -> Any:
    """Raises ValueError."""
    if len(body) > MAX_BODY_BYTES:
        raise Refused(f"a body of {len(body)} bytes: at most {MAX_BODY_BYTES} are read")
    try:
        return json.loads(body)
    except RecursionError:
        raise Refused("brackets in more brackets than can be read: write a list of circuits, or an object") from None


class _Rest(wsgi.ControllerBase):  # type: ignore[misc]  # Ryu has no types
    def __init__(self, request: Any, link: Any, data: dict[str, Any], **config: Any) -> None:
        super().__init__(request, link, data, **config)
        self._app: FabricApp = data["app"]

    @http("GET", "/status")
    def status(self, _request: Any, **_kwargs: Any) -> Any:
        return _json(status(self._app))

    @http("GET", "/fabric")
    def fabric(self, _request: Any, **_kwargs: Any) -> Any:
        return _json(self._app.state.fabric.to_dict())

    @http("GET", "/links")
    def links(self, _request: Any, **_kwargs: Any) -> Any:
        return _json(links(self._app))

    @http("GET", "/policy")
    def policy(self, _request: Any, **_kwargs: Any) -> Any:
        return _json(policy(self._app))

    @http("GET", "/ports")
    def ports(self, _request: Any, **_kwargs: Any) -> Any:
        return _json(ports(self._app))

    @http("GET", "/flows")
    def flows(self, _request: Any, **_kwargs: Any) -> Any:
        return _json([to_plain(demand) for demand in self._app.demands])

    @http("POST", "/flows")
    def announce(self, request: Any, **_kwargs: Any) -> Any:
        return self._announce(request, merged)

    @http("DELETE", "/flows")
    def withdraw(self, request: Any, **_kwargs: Any) -> Any:
        return self._announce(request, without if request.body else lambda *_: ())

    def _announce(self, request: Any, change: _Change) -> Any:
        try:
            named = from_plain(parsed(request.body or b"[]"))
            return _json(self._app.announce(change(self._app.demands, named)))
        except ValueError as error:
            return _json({"error": str(error)}, 400)

    @http("GET", "/circuits")
    def circuits(self, _request: Any, **_kwargs: Any) -> Any:
        return self._about_circuits(lambda changer: changer.summary())

    @http("GET", "/circuits/history")
    def circuit_history(self, _request: Any, **_kwargs: Any) -> Any:
        return self._about_circuits(lambda changer: changer.past())

    @http("PUT", "/circuits")
    def set_circuits(self, request: Any, **_kwargs: Any) -> Any:
        return self._change_circuits(request, lambda changer, data: changer.set_by_name(data))

    @http("GET", "/plan")
    def plan(self, _request: Any, **_kwargs: Any) -> Any:
        return self._about_circuits(lambda changer: changer.plan.summary())

    @http("PUT", "/plan")
    def start_plan(self, request: Any, **_kwargs: Any) -> Any:
        return self._change_circuits(request, lambda changer, data: changer.plan.start(data))

    @http("DELETE", "/plan")
    def stop_plan(self, _request: Any, **_kwargs: Any) -> Any:
        return self._about_circuits(lambda changer: changer.plan.stop())

    def _change_circuits(self, request: Any, change: Callable[["CircuitChanger", Any], Any]) -> Any:
        try:
            data = parsed(request.body)
            return self._about_circuits(lambda changer: change(changer, data))
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        except EmulationError as error:
            return _json({"error": str(error)}, 503)

    def _about_circuits(self, answer: Callable[["CircuitChanger"], Any]) -> Any:
        if self._app.circuits is None:
            return _json({"error": "no optical switches: start the controller with --dark"}, 404)
        return _json(answer(self._app.circuits))

    @http("GET", "/rules")
    def rules(self, _request: Any, **_kwargs: Any) -> Any:
        return _json({switch: _texts(rules) for switch, rules in sorted(self._app.state.installed.items())})

    @http("GET", "/rules/{switch}")
    def rules_of(self, _request: Any, switch: str, **_kwargs: Any) -> Any:
        state = self._app.state
        names = [node.name for node in state.fabric.switches]
        if switch not in names:
            return _json({"error": unknown("switch", switch, names)}, 404)
        return _json(_texts(state.installed.get(switch, SwitchRules())))


def status(app: "FabricApp") -> dict[str, Any]:
    """`generation` counts the link states that every switch confirmed; `converged_at` is Unix time, of the last one."""
    switches = [switch.name for switch in app.state.fabric.switches]
    return {
        "ready": app.is_ready,
        "connected": len(app.datapaths),
        "switches": len(switches),
        "missing": [name for name in switches if name not in app.datapaths],
        "unknown_datapaths": [f"{dpid:016x}" for dpid in sorted(app.unknown_dpids)],
        "errors": app.n_errors,
        "refused": app.has_refusals,
        "last_error": app.last_error,
        "packet_ins": app.packet_ins,
        "policy": app.policy_name,
        "reactions": app.reactions,
        "generation": app.generation,
        "converged_at": app.converged_at,
        "links_down": len(app.state.down),
    }


def links(app: "FabricApp") -> list[dict[str, Any]]:
    """Every link of the fabric in its order, with what its switches say about it."""
    fabric, down = app.state.fabric, app.state.down
    return [
        {
            "index": link.index,
            "label": fabric.label(link),
            "kind": link.kind,
            "a": link.a.intf,
            "b": link.b.intf,
            "up": link.index not in down,
        }
        for link in fabric.links
    ]


def policy(app: "FabricApp") -> dict[str, Any]:
    """How often port counters were read and how often that changed rules; if any: every `period_s`; and what one that
    follows load or announced flows has `decided`."""
    chosen = app.state.policy
    period = {"period_s": chosen.period_s} if isinstance(chosen, Reactive) else {}
    decided = {"decided": chosen.summary()} if isinstance(chosen, Reactive | Announced) else {}
    return {"name": app.policy_name, "readings": app.readings, "reactions": app.reactions, **period, **decided}


def ports(app: "FabricApp") -> dict[str, Any]:
    """Counters by switch and interface, asked now; `missing` are the switches that did not answer in time."""
    counters = {switch: _counters(bodies) for switch, bodies in app.read_ports().items()}
    return {"ports": counters, "missing": [s.name for s in app.state.fabric.switches if s.name not in counters]}


def _counters(bodies: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {intf: {name: getattr(body, name) for name in _COUNTERS} for intf, body in bodies.items()}


def _texts(rules: SwitchRules) -> dict[str, list[str]]:
    return {"flows": [str(flow) for flow in rules.flows], "groups": [str(group) for group in rules.groups]}
