"""The Ryu application: connects `State` to real switches and decides nothing itself.

One green thread converges: it compares what the switches have with what they should have and sends the difference,
stage by stage, each ended by a barrier. Events only change the state and wake it, so a burst of them costs one pass,
and a controller that comes back to programmed switches sends nothing.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, ClassVar

from controller import openflow
from controller.circuits.device import Manner
from controller.demand import Demand
from controller.exchange import Exchange, NoAnswer
from controller.loads import Loads, loads
from controller.ocs import CircuitChanger
from controller.openflow import ofp
from controller.policy import Announced, Policy, Reactive
from controller.rules import SwitchRules
from controller.ryu_compat import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    RyuApp,
    hub,
    ofp_event,
    on,
    wsgi,
)
from controller.state import State
from controller.update import Stage
from topologies.errors import Refused
from topologies.fabric import Fabric

log = logging.getLogger("controller")

# A switch answers within milliseconds; one that is busy with a whole fabric's first packets may take longer.
ANSWER_S = 5.0
# Sent messages whose text is kept, to name the rule that an error is about.
_REMEMBERED = 10_000
PORT_STATS_S = 2.0


class FabricApp(RyuApp):  # type: ignore[misc]  # Ryu has no types
    OFP_VERSIONS: ClassVar = [ofp.OFP_VERSION]
    _CONTEXTS: ClassVar = {"wsgi": wsgi.WSGIApplication}

    def __init__(
        self,
        *_args: Any,
        fabric: Fabric,
        policy: Policy,
        policy_name: str,
        manner: Manner | None = None,
        wsgi: Any = None,
        **_kwargs: Any,
    ) -> None:
        super().__init__()
        self.policy_name = policy_name
        self.state = State(fabric, policy)
        self.datapaths: dict[str, Any] = {}
        self.exchange = Exchange()
        self.n_errors = 0
        self.last_error: str | None = None
        self.packet_ins = 0
        self.readings = 0
        self.reactions = 0
        self.generation = 0
        self.converged_at: float | None = None
        self.unknown_dpids: set[int] = set()
        self._sent: OrderedDict[tuple[Any, int], str] = OrderedDict()
        self._refused: set[str] = set()
        self._confirmed: Mapping[str, SwitchRules] | None = None
        self._dirty = hub.Event()
        self.circuits = CircuitChanger(self, manner) if manner else None
        if wsgi is not None:
            from controller.rest import register

            register(wsgi, self)

    def start(self) -> None:
        super().start()
        self.threads.append(hub.spawn(self._converge_forever))
        if isinstance(self.state.policy, Reactive):
            self.threads.append(hub.spawn(self._react_forever, self.state.policy.period_s))

    @property
    def is_ready(self) -> bool:
        """Every switch of the fabric is connected, has its rules, has confirmed them by a barrier and refused none."""
        return self.state.is_converged and not self._refused and self.generation > 0

    def wake(self) -> None:
        """The state has changed: let the switches follow."""
        self._dirty.set()

    @property
    def has_refusals(self) -> bool:
        """Whether a switch has answered one of our messages with an error since it connected."""
        return bool(self._refused)

    # -- events -----------------------------------------------------------------------------------------------------

    @on(ofp_event.EventOFPStateChange, MAIN_DISPATCHER, DEAD_DISPATCHER)
    def on_state_change(self, event: Any) -> None:
        datapath = event.datapath
        switch = self.state.switch_of(datapath.id) if datapath.id is not None else None
        if switch is None:
            self._unknown(datapath)
        elif event.state == MAIN_DISPATCHER:
            # What an earlier connection told us may no longer hold: the switch program may have been restarted.
            self.state.gone(switch)
            self.datapaths[switch] = datapath
            hub.spawn(self._read, switch, datapath)
        else:
            self.exchange.abandon(datapath)
            if self._is_current(switch, datapath):
                self._gone(switch)

    @on(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, event: Any) -> None:
        message = event.msg
        switch = self.state.switch_of(message.datapath.id)
        if switch is None:
            return
        up = message.reason != ofp.OFPPR_DELETE and _is_up(message.desc)
        before = self.state.down
        self.state.port(switch, message.desc.port_no, up=up)
        if self.state.down != before:
            log.info("%s port %d is %s", switch, message.desc.port_no, "up" if up else "down")
            self._dirty.set()

    @on(
        [
            ofp_event.EventOFPFlowStatsReply,
            ofp_event.EventOFPGroupDescStatsReply,
            ofp_event.EventOFPPortStatsReply,
            ofp_event.EventOFPBarrierReply,
        ],
        MAIN_DISPATCHER,
    )
    def on_reply(self, event: Any) -> None:
        self.exchange.reply(event.msg)

    @on(ofp_event.EventOFPErrorMsg, HANDSHAKE_DISPATCHER, CONFIG_DISPATCHER, MAIN_DISPATCHER)
    def on_error(self, event: Any) -> None:
        message = event.msg
        dpid = message.datapath.id
        switch = self.state.switch_of(dpid)
        about = self._sent.get((dpid, message.xid), f"message {message.xid:#x}")
        kind = ofp.ofp_error_type_to_str(message.type)
        why = ofp.ofp_error_code_to_str(message.type, message.code)
        self._error(f"{switch or f'datapath {dpid}'} refused: {about}: {kind}, {why}")
        if switch:
            self._refused.add(switch)

    @on(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def on_packet_in(self, _event: Any) -> None:
        self.packet_ins += 1

    # -- switches coming and going ----------------------------------------------------------------------------------

    def _unknown(self, datapath: Any) -> None:
        if datapath.id is not None and datapath.id not in self.unknown_dpids:
            self.unknown_dpids.add(datapath.id)
            log.warning("datapath id %#x is not a switch of this fabric: it gets no rules", datapath.id)

    def _is_current(self, switch: str, datapath: Any) -> bool:
        """False for a connection that a newer one of the same switch has replaced."""
        return self.datapaths.get(switch) is datapath

    def _gone(self, switch: str) -> None:
        log.info("%s has disconnected", switch)
        del self.datapaths[switch]
        self.state.gone(switch)

    def _read(self, switch: str, datapath: Any) -> None:
        """Ask a switch that has just connected what it has: after our own restart that is all it needs."""
        try:
            flows = self.exchange.ask(datapath, openflow.flow_request(datapath), ANSWER_S)
            groups = self.exchange.ask(datapath, openflow.group_request(datapath), ANSWER_S)
        except NoAnswer as silence:
            self._drop(switch, datapath, str(silence))
            return
        if not self._is_current(switch, datapath):
            return
        rules, strange = openflow.decode(flows, groups)
        for stats in strange:
            datapath.send_msg(openflow.delete_request(stats, datapath))
        self._refused.discard(switch)
        self.state.reported(switch, rules, [n for n, port in datapath.ports.items() if _is_up(port)])
        self._dirty.set()

    def _drop(self, switch: str, datapath: Any, reason: str) -> None:
        """Close a connection whose state we no longer know; the switch dials again and is read afresh."""
        if self._is_current(switch, datapath):
            self._error(f"{switch}: {reason}; closing its connection")
            self._gone(switch)
        datapath.close()

    # -- convergence ------------------------------------------------------------------------------------------------

    def _converge_forever(self) -> None:
        while self.is_active:
            self._dirty.wait()
            self._dirty.clear()
            try:
                self._converge()
            except Refused as error:
                # A user's policy that fails on this set of dead links: the switches keep what they have.
                self._error(str(error))
            except Exception:
                # Whatever it is, later link failures must still be answered.
                self._error("convergence failed")
                log.exception("convergence failed")

    def _converge(self) -> None:
        target = self.state.target
        stages = self.state.stages()
        connections = dict(self.datapaths)
        for stage in stages:
            self.send(stage, connections)
        # A switch that has reconnected meanwhile has been read anew and gets its turn in the next pass.
        steady = {switch for switch, datapath in connections.items() if self._is_current(switch, datapath)}
        self.state.sent(steady & {switch for stage in stages for switch in stage}, target)
        if self.state.installed == target and (stages or target is not self._confirmed):
            self._confirmed = target
            self.generation += 1
            self.converged_at = time.time()
            n_down = len(self.state.down)
            log.info("converged: %d switches, %d links down, generation %d", len(target), n_down, self.generation)

    def send(self, stage: Stage, connections: Mapping[str, Any]) -> None:
        """Send every switch its steps and a barrier, then wait for all barriers."""
        waiting = []
        for switch, steps in stage.items():
            datapath = connections[switch]
            for step in steps:
                message = openflow.encode(step, datapath)
                datapath.set_xid(message)
                self._remember(datapath.id, message.xid, str(step))
                datapath.send_msg(message)
            waiting.append((switch, datapath, self.exchange.start(datapath, openflow.barrier_request(datapath))))
        deadline = time.monotonic() + ANSWER_S
        for switch, datapath, pending in waiting:
            try:
                self.exchange.finish(pending, deadline - time.monotonic())
            except NoAnswer as silence:
                self._drop(switch, datapath, str(silence))

    # -- announced flows --------------------------------------------------------------------------------------------

    @property
    def demands(self) -> tuple[Demand, ...]:
        policy = self.state.policy
        return policy.demands if isinstance(policy, Announced) else ()

    def announce(self, demands: tuple[Demand, ...]) -> dict[str, Any]:
        """These are all flows from now on; what the policy decides. Raises Refused."""
        decided = self.state.announce(demands)
        log.info("%s, %d flows announced: %s", self.policy_name, len(demands), decided)
        self._dirty.set()
        return decided

    # -- measured load ----------------------------------------------------------------------------------------------

    def read_ports(self) -> dict[str, dict[str, Any]]:
        """switch -> interface -> counters, asked now, of the switches that answer in time."""
        asked = [(name, datapath, openflow.port_stats_request(datapath)) for name, datapath in self.datapaths.items()]
        answers = self.exchange.ask_all(asked, PORT_STATS_S)
        return {switch: self._by_intf(switch, answers[switch]) for switch in sorted(answers)}

    def _by_intf(self, switch: str, bodies: list[Any]) -> dict[str, Any]:
        intf = {port.number: port.intf for port in self.state.fabric.ports_of(switch)}
        return {intf[body.port_no]: body for body in bodies if body.port_no in intf}

    def _react_forever(self, period_s: float) -> None:
        """Between readings that a convergence has disturbed nothing is decided."""
        before: tuple[float, dict[str, int]] | None = None
        while self.is_active:
            hub.sleep(period_s)
            now = time.monotonic(), self._sent_bytes()
            if before and self.is_ready:
                try:
                    self._react(loads(self.state.fabric, before[1], now[1], now[0] - before[0]))
                except Exception:
                    # A user's policy may do anything; the rules stay, and links are still measured.
                    self._error(f"policy {self.policy_name} cannot react")
                    log.exception("reaction failed")
            before = now if self.is_ready else None

    def _sent_bytes(self) -> dict[str, int]:
        return {intf: body.tx_bytes for ports in self.read_ports().values() for intf, body in ports.items()}

    def _react(self, measured: Loads) -> None:
        self.readings += 1
        if self.state.measured(measured):
            self.reactions += 1
            decided = self.state.policy.summary() if isinstance(self.state.policy, Reactive) else {}
            log.info("%s, reaction %d, reading %d: %s", self.policy_name, self.reactions, self.readings, decided)
            self._dirty.set()

    def _remember(self, dpid: int, xid: int, text: str) -> None:
        self._sent[dpid, xid] = text
        if len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    def _error(self, text: str) -> None:
        self.n_errors += 1
        self.last_error = text
        log.error("%s", text)


def _is_up(port: Any) -> bool:
    return not (port.config & ofp.OFPPC_PORT_DOWN or port.state & ofp.OFPPS_LINK_DOWN)
