from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.draw.memory import to_svg
from graphdsl.errors import DeclarationError

SVG = "{http://www.w3.org/2000/svg}"


def chain(length: int, name: str = "a") -> gd.Graph:
    g = gd.Graph("chain")
    out = g.host_array("out", 64, np.float32)
    arrays = [g.device_array(f"{name}{i}", 64, np.float32) for i in range(length)]
    g.device_array("kept", 64, np.float32, lifetime="persistent")
    with g.sequence():
        g.memset(arrays[0], 0)
        for before, after in pairwise(arrays):
            g.memcpy(after, before)
        g.memcpy(out, arrays[-1])
    return g


def boxes(graph: gd.Graph) -> dict[str, tuple[float, float, float, float]]:
    """Of each box its name, from what it says, and its corners."""
    found = {}
    for group in ElementTree.fromstring(to_svg(graph.plan())).iter(f"{SVG}g"):
        rect, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        found[title.text.partition(":")[0]] = (x, y, x + width, y + height)
    return found


def test_boxes_of_planned_arrays_are_apart():
    graph = chain(6)
    found = boxes(graph)
    planned = [found[name] for name in graph.plan().planned]
    assert len(planned) == 6
    for i, one in enumerate(planned):
        for other in planned[:i]:
            beside = one[2] <= other[0] + 0.2 or other[2] <= one[0] + 0.2
            over = one[3] <= other[1] + 0.2 or other[3] <= one[1] + 0.2
            assert beside or over


def test_arrays_by_themselves_stand_above_all_others():
    found = boxes(chain(3))
    assert found["kept"][3] <= min(box[1] for name, box in found.items() if name != "kept")


def test_large_graphs_number_their_steps():
    text = to_svg(chain(60).plan())
    assert "step in canonical order" in text
    assert "<circle" not in text


@pytest.mark.parametrize("name", ["<a>", "a&b", 'a"b', "ä→"])
def test_names_are_text(name):
    assert name + "1" in boxes(chain(3, name))


def test_a_graph_without_device_arrays_says_so():
    g = gd.Graph("none")
    g.empty()
    assert "no device arrays of its own" in to_svg(g.plan())


def test_each_device_has_a_panel():
    g = gd.Graph("two")
    for device in (0, 1):
        with g.on(device):
            g.memset(g.device_array(f"x{device}", 64, np.float32, lifetime="launch"), 0)
    text = to_svg(g.plan())
    assert "device 0: 256 B" in text
    assert text.index("device 0: 256 B") < text.index("device 1: 256 B")


def test_it_is_written_to_an_svg_file(tmp_path):
    path = chain(3).draw_memory(tmp_path / "memory.svg")
    assert path.read_text() == to_svg(chain(3).plan())
    for wrong in ("memory.png", "memory", 3, tmp_path / "no" / "memory.svg"):
        with pytest.raises(DeclarationError) as caught:
            chain(3).draw_memory(wrong)
        assert caught.value.field == "path"
