"""What goes to the kernel, read back by hand; no kernel is asked."""

import struct
from dataclasses import replace

import pytest

from topologies import netlink_requests, tbf
from topologies.shaping import shape


def test_requests_for_equal_shapes_differ_in_the_interface_alone() -> None:
    one, other = (netlink_requests.shaping(i, "x", shape(50, 9000)) for i in (7, 300))
    for a, b in zip(one, other, strict=True):
        assert struct.unpack_from("=i", a.data, 20) == (7,)
        assert struct.unpack_from("=i", b.data, 20) == (300,)
        assert (a.data[:20], a.data[24:]) == (b.data[:20], b.data[24:])


def test_the_class_carries_rate_ceiling_and_burst() -> None:
    """struct tc_htb_opt follows nlmsghdr, tcmsg, the kind 'htb' and two attribute headers."""
    data = netlink_requests.shaping(7, "x", shape(50, 9000))[1].data
    link_layer, rate, ceil_link_layer, ceil, *rest = struct.unpack_from("=xB6xIxB6xIIIIII", data, 16 + 20 + 8 + 4 + 4)
    ethernet = 1
    assert (link_layer, rate, ceil_link_layer, ceil) == (ethernet, 6_250_000, ethernet, 6_250_000)
    assert rest == [31_250, 31_250, 9014, 0, 0]  # buffer, cbuffer, quantum, level, prio


def test_a_rate_above_32_bits_travels_in_64() -> None:
    data = netlink_requests.shaping(7, "x", shape(100_000, 9000))[1].data
    assert data.count(struct.pack("=Q", 12_500_000_000)) == 2


@pytest.mark.parametrize(("mbps", "low_32"), [(50, 6_250_000), (100_000, 2**32 - 1)])
def test_tbf_says_rate_limit_and_burst_and_reads_them_back(mbps: float, low_32: int) -> None:
    """struct tc_tbf_qopt follows nlmsghdr, tcmsg, the kind 'tbf' and two attribute headers: two ratespecs of 12 bytes, limit,
    buffer, mtu; then TCA_TBF_BURST (6), and where 32 bits are too few TCA_TBF_RATE64 (4)."""
    asked = replace(shape(mbps, 9000), kind="tbf", limit_bytes=10**6)
    (request,) = netlink_requests.shaping(7, "x", asked)
    assert struct.unpack_from("=i", request.data, 20) == (7,)
    assert b"tbf\0" in request.data
    options = request.data[16 + 20 + 8 + 4 :]
    assert struct.unpack_from("=HH", options) == (4 + 36, 1)
    assert struct.unpack_from("=xB6xI", options, 4) == (1, low_32)
    assert struct.unpack_from("=I", options, 4 + 24) == (10**6,)
    assert struct.unpack_from("=HHI", options, 40) == (8, 6, asked.burst_bytes)
    rate, _, limit = tbf.parse(options)
    assert (rate, limit) == (asked.rate_bytes_s, 10**6)
    (change,) = netlink_requests.reshaping(7, "x", asked)
    assert struct.unpack_from("=H", change.data, 6)[0] & 0x600 == 0


def test_a_changed_rate_replaces_nothing() -> None:
    """NLM_F_CREATE (0x400) or NLM_F_EXCL (0x200) would make a second class or fail; without them tc changes in place."""
    for request in netlink_requests.reshaping(7, "x", shape(50, 9000)):
        assert struct.unpack_from("=H", request.data, 6)[0] & 0x600 == 0


def test_a_request_says_what_it_is_about() -> None:
    texts = [r.what for r in netlink_requests.shaping(7, "leaf1-eth1", shape(50, 9000))]
    assert texts == ["htb on leaf1-eth1", "class on leaf1-eth1", "bfifo on leaf1-eth1"]
