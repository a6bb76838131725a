"""The same on os-ken, Ryu's maintained fork, which brings no program to start an application: this file starts itself."""

from pathlib import Path
from typing import Any

from os_ken import cfg
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3 as ofp
from spine_leaf_rules import read_graph, rules

GRAPH = read_graph()


class SpineLeaf(app_manager.OSKenApp):
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


if __name__ == "__main__":
    cfg.CONF.set_default("ofp_listen_host", "127.0.0.1")
    cfg.CONF(project="os_ken", default_config_files=[])  # reads the command line: --ofp-tcp-listen-port and others
    app_manager.AppManager.run_apps([Path(__file__).stem])
