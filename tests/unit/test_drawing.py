"""Drawings: every part of the fabric is on the picture, once, inside it and not on top of another; and the structure shows."""

import re
import time
import xml.etree.ElementTree as ET
from functools import cache
from itertools import combinations

import pytest

from topologies import TOPOLOGIES, Fabric, topology
from topologies.builder import FabricBuilder
from topologies.drawing import Light, place, svg
from topologies.drawing.colours import colour
from topologies.drawing.grid import grid_sizes
from topologies.drawing.layout import FONT_PX, Box, Frame, Layout

SVG = "{http://www.w3.org/2000/svg}"
LARGE = [
    "dragonfly:a=8,p=4,h=4,g=0",
    "dragonfly:a=1,p=4,h=3,g=4",
    "dragonfly:a=16,p=8,h=1,g=2",
    "ocs-dragonfly:a=6,p=3,h=3,g=10",
    "spine-leaf:spines=16,leaves=32,hosts_per_leaf=16",
    "ocs-leaf:spines=2,uplinks=4",
    "fat-tree:k=8",
    "superpod:units=4,servers_per_unit=8,gpus_per_server=8,spines=8",
    "torus:dims=8x8",
    "torus:dims=4x4x4",
    "torus:dims=2x3x5,hosts_per_router=4",
    "torus:dims=12,hosts_per_router=2",
    "multi-dc:site=dragonfly(g=5)",
    "multi-dc:sites=4,site=torus",
    "multi-dc:sites=3,site=rail-optimised",
]
ALL = [*TOPOLOGIES, *LARGE]


@cache
def built(spec: str) -> Fabric:
    return topology(spec).build()


@cache
def placed(spec: str) -> Layout:
    return place(built(spec))


def overlap(a: Box, b: Box) -> bool:
    (a_left, a_top), (a_right, a_bottom) = a.corners
    (b_left, b_top), (b_right, b_bottom) = b.corners
    return a_left < b_right and b_left < a_right and a_top < b_bottom and b_top < a_bottom


def parsed(fabric: Fabric, utilisation: dict[str, float] | None = None) -> ET.Element:
    return ET.fromstring(svg(fabric, utilisation))


def titles_of_boxes(picture: ET.Element) -> list[str]:
    return [group.findtext(f"{SVG}title") or "" for group in picture.iter(f"{SVG}g")]


def titles_of_links(picture: ET.Element) -> list[str]:
    return [title for element in picture if element.tag != f"{SVG}g" and (title := element.findtext(f"{SVG}title"))]


def hull(element: ET.Element) -> list[tuple[float, float]]:
    """Points between which an element lies; of text, with 0.7 em a character."""
    x, y, width, height = (float(element.get(key, 0)) for key in ("x", "y", "width", "height"))
    if element.tag == f"{SVG}rect":
        return [(x, y), (x + width, y + height)]
    if element.tag == f"{SVG}line":
        return [(float(element.get(f"x{i}", 0)), float(element.get(f"y{i}", 0))) for i in (1, 2)]
    if element.tag == f"{SVG}text":
        size = float(element.get("font-size", 0))
        length = 0.7 * size * len(element.text or "")
        left = x - length * {"start": 0.0, "middle": 0.5, "end": 1.0}[element.get("text-anchor", "start")]
        return [(left, y - size), (left + length, y)]
    if element.tag == f"{SVG}path" and "a" not in element.get("d", ""):
        numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", element.get("d", ""))]
        return list(zip(numbers[::2], numbers[1::2], strict=True))
    return []


# -- everything is there ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_node_has_a_box_and_every_link_a_line(name: str) -> None:
    """The defaults are small enough for each host to have its own."""
    fabric = topology(name).build()
    picture = parsed(fabric)
    nodes = [re.split(r"[ :]", title)[0] for title in titles_of_boxes(picture)]
    assert sorted(nodes) == sorted(node.name for node in fabric.nodes)
    assert sorted(titles_of_links(picture)) == sorted(fabric.label(link) for link in fabric.links)


@pytest.mark.parametrize("spec", LARGE)
def test_of_a_large_fabric_only_the_insides_of_servers_are_left_out(spec: str) -> None:
    """Of hosts that one box stands for, one line leads to each of their switches."""
    fabric, layout = built(spec), placed(spec)
    key = {node.name: layout.stands_for.get(node.name, node.name) for node in fabric.nodes}
    assert {node.role for node in fabric.nodes if key[node.name] not in layout.boxes} <= {"scale-up"}
    drawn = [link for link in fabric.links if all(key[port.node] in layout.boxes for port in link.ports)]
    many = [link for link in drawn if layout.stands_for.keys() & {port.node for port in link.ports}]
    pairs = {(key[link.a.node], key[link.b.node]) for link in many}
    assert len(titles_of_links(parsed(fabric))) == len(drawn) - len(many) + len(pairs)


# -- and can be read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ALL)
def test_no_boxes_overlap(spec: str) -> None:
    boxes = sorted(placed(spec).boxes.values(), key=lambda box: box.corners[0])
    widest = max(box.width for box in boxes)
    for i, box in enumerate(boxes):
        for other in boxes[i + 1 :]:
            if other.corners[0][0] > box.x + widest:
                break
            assert not overlap(box, other), (box.title, other.title)


@pytest.mark.parametrize("spec", ALL)
def test_text_fits_its_box(spec: str) -> None:
    """DejaVu Sans, the widest usual face, takes 0.636 em for a digit and 0.61 on average for a letter."""
    for box in placed(spec).boxes.values():
        assert len(box.text) * FONT_PX[box.kind] * 0.636 < box.width


@pytest.mark.parametrize("spec", ALL)
def test_nothing_lies_outside_the_picture(spec: str) -> None:
    fabric = built(spec)
    picture = parsed(fabric, {fabric.links[0].a.intf: 1.0})
    left, top, width, height = map(float, picture.get("viewBox", "").split())
    points = [point for element in picture.iter() for point in hull(element)]
    assert all(left <= x <= left + width and top <= y <= top + height for x, y in points)
    frames = placed(spec).frames
    assert all(left <= f.left and f.right <= left + width for f in frames)
    assert all(top <= f.top and f.bottom <= top + height for f in frames)


@pytest.mark.parametrize("spec", ["spine-leaf:leaves=125,hosts_per_leaf=16", "spine-leaf:spines=1,leaves=1,hosts_per_leaf=2000",
    "dragonfly:a=10,p=5,h=4,g=40", "rail-optimised:servers=250,gpus_per_server=8", "torus:dims=10x10x20"])  # fmt: skip
def test_two_thousand_hosts_are_drawn_in_seconds(spec: str) -> None:
    fabric = topology(spec).build()
    assert len(fabric.hosts) == 2000
    start = time.process_time()
    svg(fabric, {link.a.intf: 0.5 for link in fabric.links})
    assert time.process_time() - start < 2.0


# -- structure --------------------------------------------------------------------------------------------------------


def inside(frame: Frame, box: Box) -> bool:
    (left, top), (right, bottom) = box.corners
    return frame.left <= left and right <= frame.right and frame.top <= top and bottom <= frame.bottom


def framed(fabric: Fabric, layout: Layout) -> list[set[str]]:
    """The nodes within each frame."""
    return [{name for name, box in layout.boxes.items() if inside(frame, box)} for frame in layout.frames]


@pytest.mark.parametrize("name", ["dragonfly", "ocs-dragonfly"])
def test_each_dragonfly_group_is_framed_with_its_hosts_and_nothing_else(name: str) -> None:
    fabric = topology(name).build()
    groups = [{node.name for node in fabric.nodes if node.group == i} for i in range(9)]
    layout = place(fabric)
    assert framed(fabric, layout) == groups
    for a, b in combinations(layout.frames, 2):
        apart = ((a.left - b.left) ** 2 + (a.top - b.top) ** 2) ** 0.5
        assert apart >= a.radius + b.radius


@pytest.mark.parametrize("name", ["dragonfly:a=4", "dragonfly:a=8,p=4,h=4"])
def test_a_clique_shows_all_its_links(name: str) -> None:
    """No local link hides behind a third router of its group."""
    fabric = topology(name).build()
    boxes = place(fabric).boxes
    group = [boxes[switch.name] for switch in fabric.switches if switch.group == 0]
    for a, b in combinations(group, 2):
        length = ((a.x - b.x) ** 2 + (a.y - b.y) ** 2) ** 0.5
        for c in (box for box in group if box not in (a, b)):
            assert abs((b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x)) / length > 5


@pytest.mark.parametrize("name", ["ocs-leaf", "ocs-leaf:spines=2", "ocs-dragonfly"])
def test_optical_switches_look_different_and_circuits_are_dashed(name: str) -> None:
    fabric = topology(name).build()
    picture, layout = parsed(fabric), place(fabric)
    lenses = {name for name, box in layout.boxes.items() if box.kind == "optical"}
    assert lenses == {switch.name for switch in fabric.switches if switch.role == "ocs"}
    dashed = [line for line in picture.iter(f"{SVG}line") if line.get("stroke-dasharray")]
    assert len(dashed) == sum(link.kind == "circuit" for link in fabric.links)


def test_optical_switches_have_a_row_of_their_own() -> None:
    boxes = place(topology("ocs-leaf:spines=2").build()).boxes
    assert boxes["ocs1"].y == boxes["ocs2"].y < boxes["spine1"].y == boxes["spine2"].y < boxes["leaf1"].y


@pytest.mark.parametrize("sizes", [(4, 4), (2, 2), (2, 5), (3, 3), (8, 2), (2, 2, 2), (4, 4, 4), (2, 3, 5), (3, 2, 4)])
def test_a_torus_is_known_by_its_links(sizes: tuple[int, ...]) -> None:
    assert grid_sizes(topology(f"torus:dims={'x'.join(map(str, sizes))}").build()) == sizes


@pytest.mark.parametrize("spec", ["spine-leaf", "fat-tree", "dragonfly", "torus:dims=16"])
def test_what_is_no_grid_is_not_taken_for_one(spec: str) -> None:
    assert grid_sizes(topology(spec).build()) is None


@pytest.mark.parametrize(("dims", "wraps"), [("4x4", 8), ("2x5", 2), ("2x2", 0), ("4x4x4", 48), ("3x3x2", 12)])
def test_links_that_wrap_around_are_arcs(dims: str, wraps: int) -> None:
    """One for each line of three or more routers: routers / n of them along a dimension of n."""
    fabric = topology(f"torus:dims={dims}").build()
    assert len(place(fabric).bends) == wraps


def test_a_flat_torus_has_a_column_and_a_row_for_each_coordinate() -> None:
    boxes = place(topology("torus:dims=4x3").build()).boxes
    columns = {boxes[f"x{x}y{y}"].x for x in range(1, 5) for y in range(1, 4)}
    rows = {boxes[f"x{x}y{y}"].y for x in range(1, 5) for y in range(1, 4)}
    assert (len(columns), len(rows)) == (4, 3)


@pytest.mark.parametrize("site", ["spine-leaf", "dragonfly(g=5)", "torus", "ocs-leaf", "superpod"])
def test_sites_stand_side_by_side_each_framed_with_its_border_router_on_top(site: str) -> None:
    fabric = topology(f"multi-dc:sites=3,site={site}").build()
    layout = place(fabric)
    contents = framed(fabric, layout)
    outer = [(layout.frames[i], names) for i, names in enumerate(contents) if any("border" in name for name in names)]
    assert len(outer) == 3
    for n, (_, names) in enumerate(outer, 1):
        assert names == {node.name for node in fabric.nodes if node.name.startswith(f"s{n}")}
        assert min(names, key=lambda name: layout.boxes[name].y) == f"s{n}border"
    assert outer[0][0].right < outer[1][0].left and outer[1][0].right < outer[2][0].left


def test_long_haul_links_say_their_rate_and_delay() -> None:
    layout = place(topology("multi-dc:sites=3,rate_mbps=100000,delay_us=500,links_per_pair=1").build())
    assert [note.text for note in layout.notes] == ["100Gbit, 500 us"] * 3
    assert [n.text for n in place(topology("multi-dc").build()).notes] == ["2 x 400Gbit, 1 ms"]
    assert len({(note.x, note.y) for note in layout.notes}) == 3


def test_two_border_routers_of_one_site_make_no_sites() -> None:
    builder = FabricBuilder("mine", {})
    for border in ("b1", "b2"):
        builder.switch(border, "border")
    leaf = builder.switch("leaf", "leaf", prefix="198.18.0.0/30")
    builder.link(builder.host("h1", "198.18.0.1"), leaf, "scale-out")
    for border in ("b1", "b2"):
        builder.link(leaf, border, "scale-out")
    builder.link("b1", "b2", "global")
    fabric = builder.build()
    assert place(fabric).boxes.keys() == {"b1", "b2", "leaf", "h1"}
    assert len(titles_of_links(parsed(fabric))) == 4


def test_groups_show_even_where_their_links_would_also_make_a_grid() -> None:
    """Two groups of two routers, joined twice, are a square."""
    layout = place(topology("dragonfly:a=2,p=1,h=1,g=2").build())
    assert grid_sizes(topology("dragonfly:a=2,p=1,h=1,g=2").build()) is not None and len(layout.frames) == 2


# -- load -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_link_has_the_colour_of_its_busier_direction(name: str) -> None:
    fabric = topology(name).build()
    link = fabric.links[-1]
    picture = parsed(fabric, {link.a.intf: 0.2, link.b.intf: 0.6})
    (drawn,) = (e for e in picture if (e.findtext(f"{SVG}title") or "").startswith(f"{fabric.direction(link.a)} 20%"))
    assert drawn.get("stroke") == colour(0.6)


def test_a_box_for_many_hosts_has_the_colour_of_their_busiest_link() -> None:
    fabric = topology("spine-leaf:leaves=8,hosts_per_leaf=16").build()
    busy, idle = (fabric.scale_out_port(host.name).intf for host in fabric.hosts[:2])
    picture = svg(fabric, {busy: 1.0, idle: 0.1})
    assert picture.count(f'stroke="{colour(1.0)}"') == 1 and f'stroke="{colour(0.1)}"' not in picture


def test_a_circuit_is_drawn_from_switch_to_switch_past_the_optical_one_and_the_other_way_beside_it() -> None:
    fabric = topology("ocs-leaf:leaves=4,hosts_per_leaf=1,uplinks=1,ocs=1,spines=1").build()
    boxes = place(fabric).boxes
    lights = [Light("leaf1", "ocs1", "leaf4", 'class="x"'), Light("leaf4", "ocs1", "leaf1", 'class="x"')]
    there, back = (e for e in ET.fromstring(svg(fabric, None, lights)) if e.get("class") == "x")
    for drawn, (first, last) in ((there, ("leaf1", "leaf4")), (back, ("leaf4", "leaf1"))):
        numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", drawn.get("d", ""))]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        for point, name in ((points[0], first), (points[2], "ocs1"), (points[-1], last)):
            assert abs(point[0] - boxes[name].x) < 4 and abs(point[1] - boxes[name].y) < 4
    assert there.get("d") != back.get("d")


def test_a_circuit_to_what_is_not_on_the_picture_is_left_out() -> None:
    fabric = topology("spine-leaf").build()
    assert svg(fabric, None, [Light("leaf1", "ocs9", "leaf2", 'class="x"')]) == svg(fabric)
