"""Talks to a running controller's REST API. Standard library only."""

import json
import time
import urllib.error
import urllib.request
from typing import Any

from topologies.errors import Refused

TIMEOUT_S = 5.0


class ControllerError(Refused):
    """A controller that does not answer, or a fabric that it cannot program."""


def status(rest_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """GET /status: ready, connected, switches, missing, errors, last_error, packet_ins, policy, generation, ..."""
    result: dict[str, Any] = _get(rest_url, "/status", timeout_s)
    return result


def links(rest_url: str, timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """GET /links: index, label, kind, a, b, up."""
    result: list[dict[str, Any]] = _get(rest_url, "/links", timeout_s)
    return result


def policy(rest_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """GET /policy: name, readings, reactions; of one that follows measured load also period_s, of that and of one that
    places announced flows what it has decided."""
    result: dict[str, Any] = _get(rest_url, "/policy", timeout_s)
    return result


def ports(rest_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """GET /ports: counters by switch and interface under 'ports', switches that gave none under 'missing'."""
    result: dict[str, Any] = _get(rest_url, "/ports", timeout_s)
    return result


def rules(rest_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """GET /rules: the text of flows and groups by switch."""
    result: dict[str, Any] = _get(rest_url, "/rules", timeout_s)
    return result


def flows(rest_url: str, timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """GET /flows: the 5-tuple and rate_mbps of every announced flow."""
    result: list[dict[str, Any]] = _get(rest_url, "/flows", timeout_s)
    return result


def announce(rest_url: str, flows: list[dict[str, Any]], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """POST /flows: these in addition, or with another rate; what the policy has decided."""
    result: dict[str, Any] = _ask(rest_url, "/flows", timeout_s, "POST", flows)
    return result


def withdraw(rest_url: str, flows: list[dict[str, Any]] | None = None, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """DELETE /flows: these, or all; what the policy has decided."""
    result: dict[str, Any] = _ask(rest_url, "/flows", timeout_s, "DELETE", flows)
    return result


def circuits(rest_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """GET /circuits: circuits, unreachable, device, in_the_dark, changes."""
    result: dict[str, Any] = _get(rest_url, "/circuits", timeout_s)
    return result


def circuit_history(rest_url: str, timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """GET /circuits/history: change, ocs, source, target, requested_us, achieved_us, met, up_s, down_s, of every
    cross-connect that a change has set."""
    result: list[dict[str, Any]] = _get(rest_url, "/circuits/history", timeout_s)
    return result


def set_circuits(rest_url: str, circuits: list[str], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """PUT /circuits: these are all from now on; what it took."""
    result: dict[str, Any] = _ask(rest_url, "/circuits", timeout_s, "PUT", circuits)
    return result


def plan(rest_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """GET /plan: running, slices_begun, late_us, duty_cycle, error."""
    result: dict[str, Any] = _get(rest_url, "/plan", timeout_s)
    return result


def start_plan(rest_url: str, plan: dict[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """PUT /plan: what a plan file holds, in place of the plan that is running."""
    result: dict[str, Any] = _ask(rest_url, "/plan", timeout_s, "PUT", plan)
    return result


def stop_plan(rest_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """DELETE /plan: the circuits that are set stay; answers when a change that is under way is complete."""
    result: dict[str, Any] = _ask(rest_url, "/plan", timeout_s, "DELETE", None)
    return result


def wait_ready(rest_url: str, deadline_s: float, poll_s: float = 0.05) -> dict[str, Any]:
    """The status as soon as every switch has connected and confirmed its rules.

    Raises ControllerError after `deadline_s` seconds, saying who is missing, or at once when a switch refuses a rule.
    """
    end = time.monotonic() + deadline_s
    seen: dict[str, Any] | None = None
    while (left := end - time.monotonic()) > 0:
        try:
            seen = status(rest_url, min(left, TIMEOUT_S))
        except ControllerError:
            # Not listening yet, or too busy with the switches to answer: the deadline decides.
            time.sleep(poll_s)
            continue
        if seen["ready"]:
            return seen
        if seen["refused"]:
            raise ControllerError(f"the fabric cannot be programmed: {seen['last_error']}")
        time.sleep(poll_s)
    raise ControllerError(_why_not_ready(rest_url, seen, deadline_s))


def _why_not_ready(rest_url: str, seen: dict[str, Any] | None, deadline_s: float) -> str:
    if seen is None:
        return f"no controller answers at {rest_url} after {deadline_s:g} s"
    missing = f", missing: {', '.join(seen['missing'])}" if seen["missing"] else ", not all rules confirmed"
    return f"controller not ready after {deadline_s:g} s: {seen['connected']}/{seen['switches']} switches{missing}"


def _get(rest_url: str, path: str, timeout_s: float) -> Any:
    return _ask(rest_url, path, timeout_s, "GET", None)


def _ask(rest_url: str, path: str, timeout_s: float, method: str, body: Any) -> Any:
    url = rest_url.rstrip("/") + path
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ControllerError(f"controller at {url}: {_reason(error)}") from error
    except (OSError, ValueError) as error:
        raise ControllerError(f"controller at {url}: {getattr(error, 'reason', error)}") from error


def _reason(error: urllib.error.HTTPError) -> str:
    """What the controller itself says is wrong, else HTTP's phrase."""
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError):
        return f"{error.code} {error.reason}"
