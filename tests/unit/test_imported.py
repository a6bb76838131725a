"""A file as `--topology`, and the files that `describe` writes."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab import cli
from lab.planning.experiment import Experiment
from lab.planning.plan import plan
from topologies import TopologyError, graphml, topology
from topologies.conformance import check_topology
from topologies.drawing import svg
from topologies.fabric import Fabric
from topologies.infragraph import INSTALL, to_infragraph


@pytest.fixture
def exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A rail-optimised fabric, which has scale-up links too, as a file."""
    file = tmp_path / "mine.graphml"
    assert cli.main(["describe", "--topology", "rail-optimised", "--graphml", str(file)]) == 0
    capsys.readouterr()
    return file


def test_an_imported_fabric_conforms_and_is_what_was_exported(exported: Path) -> None:
    want = topology("rail-optimised").build()
    assert check_topology(topology(str(exported))) == []
    fabric = topology(str(exported)).build()
    assert (fabric.nodes, fabric.links) == (want.nodes, want.links)
    assert svg(fabric).count("<line") == svg(want).count("<line")


def test_it_is_named_after_its_file_so_that_no_formula_of_ours_is_applied(tmp_path: Path, exported: Path) -> None:
    """It may have been edited."""
    fabric = topology(str(exported.rename(tmp_path / "rail-optimised.graphml"))).build()
    assert fabric.name == "rail-optimised.graphml"
    assert fabric.parameters == {"file": str(tmp_path / "rail-optimised.graphml")}


def test_describe_shows_its_counts_and_no_bisection(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["describe", "--topology", str(exported), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    want = topology("rail-optimised").closed_form()
    assert (described["hosts"], described["switches"]) == (want.hosts, want.switches)
    assert described["links"] == {"scale-out": want.links, "scale-up": want.scale_up_links}
    assert described["diameter"] == want.diameter and described["bisection_gbps"] is None
    assert Fabric.from_dict(described) == topology(str(exported)).build()


def test_a_run_over_it_can_be_planned(exported: Path) -> None:
    planned = plan(Experiment(topology=str(exported), link_rate_mbps=100_000.0))
    assert planned.ranks == len(topology("rail-optimised").build().hosts)
    assert planned.nic_mbps == 100_000.0


def test_one_cable_at_half_the_rate_doubles_the_ring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every chunk of a ring crosses every edge. To have a slow cable: write the fabric, edit its rate, run the file."""
    file, edited = tmp_path / "written.graphml", tmp_path / "edited.graphml"
    assert cli.main(["describe", "--topology", "spine-leaf:spines=1,leaves=2", "--graphml", str(file)]) == 0
    fabric = topology(str(file)).build()
    slow = fabric.link_of("h3-eth0")
    links = (replace(x, rate_mbps=x.rate_mbps / 2) if x is slow else x for x in fabric.links)
    edited.write_text(graphml.to_graphml(replace(fabric, links=tuple(links))))

    def predicted(topology: Path) -> tuple[float, str]:
        capsys.readouterr()
        options = ["--scale", "8000:64", "-b", "4G", "-e", "4G", "--json"]
        assert cli.main(["predict", "--topology", str(topology), *options]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        return row["predicted_s"], row["bottleneck"]

    (even_s, _), (slow_s, busiest) = predicted(file), predicted(edited)
    assert slow_s / even_s == pytest.approx(2, rel=0.03)
    assert busiest in ("h3->leaf1", "leaf1->h3")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("none.graphml", None, "cannot be read: No such file or directory"),
        ("bad.graphml", "4 hosts", "not GraphML: syntax error: line 1, column 0"),
    ],
)
def test_a_file_that_is_no_fabric_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, says: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    assert cli.main(["describe", "--topology", str(file)]) == 2
    assert capsys.readouterr().err == f"run_topo.py: topology {str(file)!r}: {says}\n"


@pytest.mark.parametrize("option", ["--graphml", "--svg"])
def test_a_file_that_cannot_be_written_is_refused_by_name(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert cli.main(["describe", option, "/nowhere/fabric"]) == 2
    assert (
        capsys.readouterr().err
        == "run_topo.py: '/nowhere/fabric' cannot be written: No such file or directory: choose another file\n"
    )


def test_a_file_has_no_parameters() -> None:
    with pytest.raises(
        TopologyError, match=r"^topology './my\.graphml:k=4': write a file in \.graphml, .* parameters$"
    ):
        topology("./my.graphml:k=4")


def test_without_infragraphs_package_the_refusal_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "infragraph", None)
    monkeypatch.setitem(sys.modules, "infragraph.infragraph_service", None)
    with pytest.raises(TopologyError, match="InfraGraph needs its own package: run `") as refused:
        to_infragraph(topology("spine-leaf").build())
    assert INSTALL in str(refused.value)
    (tmp_path / "a.yaml").write_text("{}")
    with pytest.raises(TopologyError, match="InfraGraph needs its own package"):
        topology(str(tmp_path / "a.yaml")).build()
