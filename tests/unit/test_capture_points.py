"""`--pcap`: which interface a host or a link means, and what is refused."""

import pytest

from lab.errors import LabError
from lab.planning.capture_points import capture_points
from topologies import topology

FABRIC = topology("spine-leaf:spines=2,leaves=2,hosts_per_leaf=2,links_per_pair=2").build()


def test_hosts_links_and_interfaces() -> None:
    h1, leaf1 = FABRIC.scale_out_port("h1"), FABRIC.switch_of("h1")
    up = [port for port, far, _ in FABRIC.neighbours(leaf1) if far.node == "spine1"]
    found = capture_points(f"h1, leaf1->spine1#2,{up[0].intf},h1", FABRIC)
    assert [(p.port, p.host) for p in found] == [(h1, "h1"), (up[1], None), (up[0], None)]
    assert [p.name for p in found] == [h1.intf, up[1].intf, up[0].intf]
    # The host's end of its cable.
    assert capture_points("h1->leaf1", FABRIC)[0].host == "h1"


@pytest.mark.parametrize("text", ["h9", "", "h1,leaf1", "leaf1->spine1", "leaf1->leaf2"])
def test_what_is_not_there_is_refused(text: str) -> None:
    """A switch alone is no point; of parallel links one must be named."""
    with pytest.raises(LabError) as caught:
        capture_points(text, FABRIC)
    named = text.rpartition(",")[2]
    assert str(caught.value) == (
        f"--pcap {named!r} is no host and no link of spine-leaf: write a host such as h1, or a link such as spine1->leaf1#1"
    )
