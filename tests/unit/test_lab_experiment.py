"""Experiment files and overrides: what is read, and the exact text of each refusal."""

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.planning.experiment import SETTINGS, Experiment, load
from lab.planning.scale import Scale
from lab.planning.values import controller_address


def _file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "x.toml"
    file.write_text(text)
    return file


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(LabError) as caught:
        load(_file(tmp_path, text))
    return str(caught.value).replace(str(tmp_path) + "/", "")


def test_default_file_is_the_documented_default() -> None:
    e = load()
    assert e.topology == "spine-leaf:spines=2,leaves=4,hosts_per_leaf=4"
    assert (e.routing, e.collective, e.transport, e.placement) == ("ecmp", "all_reduce", "tcp", "contiguous")
    assert (e.min_bytes, e.max_bytes, e.step_factor) == (2**30, 2**30, 2)
    assert (e.iterations, e.warmup_iterations, e.scale, e.seed, e.mtu) == (3, 1, None, 1, 9000)


def test_every_setting_can_stand_in_a_file(tmp_path: Path) -> None:
    e = load(
        _file(
            tmp_path,
            """
            [fabric]
            topology = "spine-leaf"
            spines = 4
            link_rate = "100Gbit"
            delay = "20us"
            jitter = "0"
            loss = "0.1%"
            ecn_threshold = "50us"
            mtu = 1500
            [routing]
            routing = "single-path"
            addressing = "l2"
            controller = "tcp:127.0.0.1:6653"
            [circuits]
            circuits = "solstice:slice=1ms"
            dark = "rotor"
            in_the_dark = "divert"
            [traffic]
            collective = "all_gather"
            algorithm = "ring"
            helpers_at = "leaf1, spine2"
            helper_rate = "800Gbit"
            transport = "udp"
            congestion_control = "dcqcn:gain=0.01"
            qps = 16
            path_mtu = 1024
            reliability = "selective"
            spread = "flowlet"
            entropy = 32
            flowlet_gap = "1ms"
            placement = "random"
            ranks = 8
            min_bytes = "1M"
            max_bytes = 8000000
            step_factor = 4
            iterations = 20
            warmup_iterations = 0
            in_place = true
            flows_per_host = 8
            group_size = 4
            group_shift = 2
            [run]
            scale = "8000:64"
            seed = 7
            time_limit = "300s"
            """,
        )
    )
    assert e == Experiment(
        topology="spine-leaf:spines=4", link_rate_mbps=100_000.0, delay_us=20.0, jitter_us=0.0, loss_percent=0.1,
        ecn_threshold_us=50.0, mtu=1500, routing="single-path", addressing="l2", controller="tcp:127.0.0.1:6653",
        circuits="solstice:slice=1ms", dark="rotor", in_the_dark="divert",
        collective="all_gather", algorithm="ring", helpers_at=("leaf1", "spine2"), helper_rate_mbps=800_000.0,
        transport="udp", congestion_control="dcqcn:gain=0.01", qps=16,
        path_mtu=1024, reliability="selective", spread="flowlet", entropy=32, flowlet_gap_us=1000.0,
        placement="random", ranks=8, min_bytes=2**20,
        max_bytes=8_000_000, step_factor=4, iterations=20, warmup_iterations=0, in_place=True, flows_per_host=8, group_size=4,
        group_shift=2, scale=Scale(8000, 64), seed=7,
        time_limit_s=300.0,
    )  # fmt: skip


def test_overrides_beat_the_file_and_none_does_not(tmp_path: Path) -> None:
    file = _file(tmp_path, '[traffic]\niterations = 5\nmin_bytes = "1M"\n')
    e = load(file, {"iterations": "7", "min_bytes": None, "topology": "spine-leaf:spines=1", "link_rate": "50Gbit"})
    assert (e.iterations, e.min_bytes, e.topology, e.link_rate_mbps) == (7, 2**20, "spine-leaf:spines=1", 50_000.0)


def test_a_users_own_topology_takes_parameters_from_the_table(tmp_path: Path) -> None:
    assert (
        load(_file(tmp_path, '[fabric]\ntopology = "./mine.py:Ring"\nwidth = 3\n')).topology == "./mine.py:Ring:width=3"
    )
    assert (
        load(_file(tmp_path, '[fabric]\ntopology = "./mine.py:Ring:a=1"\nwidth = 3\n')).topology
        == "./mine.py:Ring:a=1,width=3"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[fabrik]\n", "x.toml: unknown table 'fabrik': choose from circuits, fabric, routing, run, traffic, workload"),
        ("seed = 1\n", "x.toml: unknown table 'seed': choose from circuits, fabric, routing, run, traffic, workload"),
        ("fabric = 1\n", "x.toml: fabric = 1 must be a table: write [fabric] on a line of its own"),
        (
            "[run]\nsed = 1\n",
            "x.toml: unknown key in [run] 'sed': choose from scale, seed, time_limit",
        ),
        (
            "[fabric]\nspinez = 4\n",
            (
                "x.toml: unknown key in [fabric] 'spinez': choose from delay, ecn_threshold, hosts_per_leaf, jitter, leaves, "
                "link_rate, links_per_pair, loss, mtu, queue, spines, topology"
            ),
        ),
        ("[run]\nseed = true\n", "x.toml: [run] seed = True must be a whole number"),
        ("[run]\nseed = 'one'\n", "x.toml: [run] seed = 'one' must be a whole number"),
        ("[run]\nseed = -1\n", "x.toml: [run] seed = -1 is too small: use 0 or more"),
        (
            "[fabric]\nlink_rate = 400\n",
            "x.toml: [fabric] link_rate: rate '400' is not a positive number with a unit: write it like 400Gbit or 50Mbit",
        ),
        (
            "[fabric]\nlink_rate = '-5Gbit'\n",
            "x.toml: [fabric] link_rate: rate '-5Gbit' is not a positive number with a unit: write it like 400Gbit or 50Mbit",
        ),
        (
            "[fabric]\nlink_rate = '0Gbit'\n",
            "x.toml: [fabric] link_rate: rate '0Gbit' is below 100kbit, the slowest link the testbed shapes",
        ),
        (
            "[fabric]\ndelay = '20'\n",
            "x.toml: [fabric] delay: duration '20' is not a positive number with a unit: write it like 20us or 10ms",
        ),
        ("[fabric]\nmtu = 80000\n", "x.toml: [fabric] mtu = 80000 is not possible: use 576 to 9216"),
        ("[fabric]\nloss = 'some'\n", "x.toml: [fabric] loss = 'some' is not a share of packets: write it like 0.1%"),
        ("[routing]\naddressing = 'l4'\n", "x.toml: [routing] addressing = 'l4': choose from l3, l2"),
        (
            "[routing]\ncontroller = '127.0.0.1:6653'\n",
            "controller '127.0.0.1:6653' is not tcp:HOST:PORT: write it like tcp:127.0.0.1:6653",
        ),
        (
            "[routing]\ncontroller = 'tcp:host:70000'\n",
            "controller 'tcp:host:70000': port 70000 does not exist, use 1 to 65535",
        ),
        ("[traffic]\ncollective = 3\n", 'x.toml: [traffic] collective = 3 must be text: write it like "name"'),
        ("[traffic]\niterations = 0\n", "x.toml: [traffic] iterations = 0 is too small: use 1 or more"),
        ("[traffic]\nflows_per_host = 0\n", "x.toml: [traffic] flows_per_host = 0 is too small: use 1 or more"),
        ("[traffic]\ngroup_size = 0\n", "x.toml: [traffic] group_size = 0 is too small: use 1 or more"),
        ("[traffic]\nstep_factor = 1\n", "x.toml: [traffic] step_factor = 1 is too small: use 2 or more"),
        ("[traffic]\nstep_factor = 1.5\n", "x.toml: [traffic] step_factor = 1.5 must be a whole number"),
        (
            "[traffic]\nmin_bytes = 0\n",
            "x.toml: [traffic] min_bytes = 0: 0 bytes send nothing; use 4 or more",
        ),
        (
            "[traffic]\nmin_bytes = '-1M'\n",
            "x.toml: [traffic] min_bytes: size '-1M' is not a positive number with a unit: write it like 1GiB, 64M or 10MB",
        ),
        ("[traffic]\nin_place = 1\n", "x.toml: [traffic] in_place = 1 must be true or false"),
        (
            "[run]\nscale = 'big'\n",
            "x.toml: [run] scale: scale 'big' is not auto, RATE or RATE:SIZE: write it like 8000:64",
        ),
        ("[run]\nscale = '0.5'\n", "x.toml: [run] scale: rate_scale = 0.5 would enlarge the hardware: use 1 or more"),
        ("[run]\ntime_limit = '10ms'\n", "x.toml: [run] time_limit = '10ms' is too short for any run: use 1s or more"),
        (
            "[run\n",
            "experiment file 'x.toml' is not TOML: Expected ']' at the end of a table declaration (at line 1, column 5)",
        ),
    ],
)
def test_refusals(tmp_path: Path, text: str, expected: str) -> None:
    assert refusal(tmp_path, text) == expected


def test_refused_overrides_name_the_option() -> None:
    for key, value, expected in (
        ("iterations", "0", "-n = 0 is too small: use 1 or more"),
        ("step_factor", "1", "-f = 1 is too small: use 2 or more"),
        ("min_bytes", "0", "-b = '0': 0 bytes send nothing; use 4 or more"),
        (
            "link_rate",
            "10",
            "--link-rate: rate '10' is not a positive number with a unit: write it like 400Gbit or 50Mbit",
        ),
        ("colour", "red", f"unknown setting 'colour': choose from {', '.join(sorted(SETTINGS))}"),
    ):
        with pytest.raises(LabError) as caught:
            load(None, {key: value})
        assert str(caught.value) == expected


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"^experiment file '.*nowhere.toml' cannot be read: No such file or directory$"):
        load(tmp_path / "nowhere.toml")


def test_controller_address() -> None:
    assert controller_address("tcp:127.0.0.1:6653") == ("127.0.0.1", 6653)
    assert controller_address("tcp:[::1]:6653") == ("::1", 6653)


def test_to_dict_is_plain() -> None:
    assert load(None, {"scale": "8000:64"}).to_dict()["scale"] == "8000:64"
    assert load().to_dict()["scale"] == "auto"
