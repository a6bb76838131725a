"""A controller of your own, on Ryu. docs/own-controller.md says how to start it."""

from typing import Any

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import CONFIG_DISPATCHER, set_ev_cls
from ryu.ofproto import ofproto_v1_3 as ofp
from spine_leaf_rules import read_graph, rules

GRAPH = read_graph()


class SpineLeaf(app_manager.RyuApp):
    OFP_VERSIONS = (ofp.OFP_VERSION,)

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, event: Any) -> None:
        """A switch has connected: it gets all its rules, and nothing is decided by packet later."""
        datapath = event.msg.datapath
        parser = datapath.ofproto_parser
        for ip, port, mac in rules(GRAPH, datapath.id):
            actions = [parser.OFPActionSetField(eth_dst=mac)] if mac else []
            actions.append(parser.OFPActionOutput(port))
            datapath.send_msg(
                parser.OFPFlowMod(
                    datapath,
                    priority=100,
                    match=parser.OFPMatch(eth_type=0x0800, ipv4_dst=ip),
                    instructions=[parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)],
                )
            )
        self.logger.info("%d: rules sent", datapath.id)
