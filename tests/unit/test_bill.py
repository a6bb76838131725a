"""The parts of a fabric, and what they cost, draw and how often they fail."""

from dataclasses import replace

import pytest

from topologies import topology
from topologies.bill import AOC_REACH_M, DAC_REACH_M, FIBRE_REACH_M, RUNS, bill, bill_of
from topologies.errors import TopologyError
from topologies.prices import DEFAULT_PRICES, PARTS, Price, parse_prices
from topologies.sizing import Want, sized


def parts(spec: str, **options: str) -> dict[str, int]:
    """name -> how many, of whatever rate."""
    return {name: n for (name, _), n in bill(topology(spec).build(), **options).parts.items()}


def test_spine_leaf_by_hand() -> None:
    """16 hosts in the rack of their leaf on copper, 8 uplinks on fibre with a transceiver at each end."""
    found = parts("spine-leaf")
    assert found == {"nic": 16, "switch": 6, "switch_port": 32, "dac": 16, "fibre": 8, "dsp": 16}


def test_dragonfly_by_hand() -> None:
    """h = 2: 72 hosts, 54 short local links, 36 global ones across the hall."""
    found = parts("dragonfly")
    assert (found["dac"], found["aoc"], found["fibre"], found["dsp"]) == (72, 54, 36, 72)


def test_a_torus_needs_no_transceiver() -> None:
    """4 x 4: 16 hosts, 32 cables between neighbours."""
    found = parts("torus:dims=4x4")
    assert (found["dac"], found["aoc"], "fibre" in found) == (16, 32, False)


def test_a_server_whose_accelerators_go_to_several_leaves_needs_longer_cables() -> None:
    """4 servers of 4: each NIC on the leaf of its rail. What is inside the servers is not counted."""
    found = parts("rail-only")
    assert found == {"nic": 16, "switch": 4, "switch_port": 16, "aoc": 16}


def test_an_optical_switch_holds_no_transceiver_and_passes_light_of_any_rate() -> None:
    """4 leaves with 2 uplinks each to 2 optical switches: 8 fibres with one transceiver each."""
    fabric = topology("ocs-leaf").build()
    found = bill(fabric)
    assert (found.count("ocs"), found.count("ocs_port"), found.count("fibre"), found.transceivers) == (2, 8, 8, 8)
    assert found.cable_ends == 2 * 16 + 8
    slow = bill(fabric.with_links(rate_mbps=200_000))
    light = 8 * (DEFAULT_PRICES.ocs_port.usd + DEFAULT_PRICES.fibre.usd)
    assert slow.cost_usd() - light == pytest.approx((found.cost_usd() - light) / 2)


def test_long_haul_is_coherent() -> None:
    """1 ms is 200 km; sites next door are joined by fibre like any other global link."""
    assert parts("multi-dc")["coherent"] == 4
    assert "coherent" not in parts("multi-dc:delay_us=1")


def test_medium_follows_from_length() -> None:
    for run, where in RUNS.items():
        found = bill_of({(run, 400.0): 1}, switches=0)
        (medium,) = found.by_cable
        if "ocs_port" not in where.ends:
            assert (medium == "dac") == (where.length_m <= DAC_REACH_M)
            assert (medium == "fibre") == (where.length_m > AOC_REACH_M)
        assert (found.count("coherent") > 0) == (where.length_m > FIBRE_REACH_M)


def test_optics_change_the_ends_of_fibres_only() -> None:
    dsp, lpo, cpo = (bill(topology("spine-leaf").build(), optics) for optics in ("dsp", "lpo", "cpo"))
    assert (lpo.count("lpo"), cpo.count("cpo")) == (16, 16)
    assert dsp.power_w() - lpo.power_w() == pytest.approx(16 * (9 - 4.3))
    assert dsp.power_w() > lpo.power_w() > cpo.power_w()
    with pytest.raises(TopologyError, match="unknown optics 'lasers': choose from cpo, dsp, lpo"):
        bill(topology("spine-leaf").build(), "lasers")


def test_twice_the_rate_costs_and_draws_twice_but_fails_as_often() -> None:
    fabric = topology("rail-only").build()
    one, two = (bill(fabric.with_links(rate_mbps=rate)) for rate in (400_000, 800_000))
    assert two.cost_usd() == pytest.approx(2 * one.cost_usd())
    assert two.power_w() == pytest.approx(2 * one.power_w())
    assert two.failures_per_year() == pytest.approx(one.failures_per_year())


def test_the_failure_rates_give_back_what_llama_3_saw() -> None:
    """54 days, 16 384 GPUs: 7 failures of NICs, 35 of switches and cables (table 5). Full three-tier, 64 ports."""
    found = sized("fat-tree", Want(16384, 64)).bill(400)
    no_nics = replace(DEFAULT_PRICES, nic=Price())
    of_network = found.failures_per_year(no_nics)
    assert of_network * 54 / 365 == pytest.approx(35, rel=0.05)
    assert (found.failures_per_year() - of_network) * 54 / 365 == pytest.approx(7, rel=0.05)


def test_prices_of_ones_own() -> None:
    prices = parse_prices("[dsp]\nusd = 700\nwatts = 14.5\n[nic]\nfailures_per_year = 1\n", "mine.toml")
    assert prices.dsp == Price(700, 14.5, DEFAULT_PRICES.dsp.failures_per_year)
    assert prices.fibre == DEFAULT_PRICES.fibre and prices.source == "mine.toml"
    found = bill(topology("spine-leaf").build())
    assert found.cost_usd(prices) - found.cost_usd() == pytest.approx(16 * 200)
    assert found.failures_per_year(prices) == pytest.approx(found.failures_per_year() + 16 * (1 - 0.003))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[lasers]\nusd = 1\n", ["mine.toml", "'lasers'", *PARTS]),
        ("[dsp]\neuros = 1\n", ["[dsp]", "'euros'", "usd", "watts", "failures_per_year"]),
        ("[dsp]\nusd = -1\n", ["usd = -1", "0 or more"]),
        ("[dsp]\nusd = 'x'\n", ["usd = 'x'", "number"]),
        ("[dsp]\nusd = nan\n", ["usd = nan", "number"]),
        ("dsp = 5\n", ["[dsp]", "table"]),
        ("[dsp\n", ["mine.toml", "TOML"]),
    ],
)
def test_a_price_file_is_refused_by_name(text: str, wanted: list[str]) -> None:
    with pytest.raises(TopologyError) as refusal:
        parse_prices(text, "mine.toml")
    assert [word for word in wanted if word not in str(refusal.value)] == []
    assert "\n" not in str(refusal.value)
