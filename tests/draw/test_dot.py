import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import numpy as np
import pygraphviz
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdsl.declare.definition import Definition
from graphdsl.draw.dot import FORMATS, MANY_NODES, render, to_dot, write
from graphdsl.errors import DeclarationError, GraphdslError
from tests.draw.graphs import chain, demo

SVG = "{http://www.w3.org/2000/svg}"
RED = "#c62828"


def parsed(dot_text):
    """What Graphviz reads, as plain data: handles of pygraphviz must not outlive their graph."""
    graph = pygraphviz.AGraph(string=dot_text)
    return SimpleNamespace(
        name=str(graph.name),
        attributes=dict(graph.graph_attr),
        nodes={str(node): node.attr.to_dict() for node in graph.nodes()},
        edges={(str(edge[0]), str(edge[1])): edge.attr.to_dict() for edge in graph.edges()},
        clusters=clusters(graph),
    )


def read(identifier):
    """The name that an identifier stands for."""
    return re.sub(r"\\(.)", r"\1", identifier)


def clusters(graph):
    """Each cluster's name with the set of its nodes and the clusters inside."""
    return {each.name: (set(map(str, each.nodes())), clusters(each)) for each in graph.subgraphs()}


def texts(definition, **options):
    """The lines of text in the picture, as a reader sees them."""
    root = ElementTree.fromstring(render(to_dot(definition, **options), "svg"))
    return ["".join(each.itertext()).replace("\xa0", " ").strip() for each in root.iter(f"{SVG}text")]


def finding(*nodes, code="GD201", severity="error"):
    return SimpleNamespace(nodes=nodes, code=code, severity=severity)


def red_nodes(dot_text):
    return [name for name, look in parsed(dot_text).nodes.items() if look["color"] == RED]


def red_edges(dot_text):
    return {ends for ends, look in parsed(dot_text).edges.items() if look["color"] == RED}


# What is drawn


def test_nodes_and_edges_are_those_of_the_definition():
    g = demo()
    drawn = parsed(to_dot(g))
    assert drawn.name == "demo"
    assert list(drawn.nodes) == ["load", "clear", "run", "store", "log", "end"]
    assert set(drawn.edges) == set(g.dag.edges)


def test_each_kind_has_its_own_shape_and_colour():
    looks = parsed(to_dot(demo())).nodes.values()
    assert {look["class"] for look in looks} == {"kernel", "memcpy", "memset", "host", "empty"}
    assert len({look["shape"] for look in looks}) == len({look["fillcolor"] for look in looks}) == 5


def test_labels_show_names_and_what_the_nodes_do():
    shown = texts(demo())
    for text in ("demo", "6 nodes, 5 edges", "run", "scale<<<cdiv(n, 256), 256>>>", "raw → x, 4 KiB", "y = 0", "log()"):
        assert text in shown


def test_the_legend_has_the_kinds_that_are_there():
    assert {"kernel", "memcpy", "memset", "host", "empty"} <= set(texts(demo()))
    assert {"kernel", "memcpy", "memset", "host", "empty"} & set(texts(chain("a", "b"))) == {"empty"}


def test_tooltips_have_the_full_name_and_the_arguments():
    node = parsed(to_dot(demo())).nodes["run"]
    assert node["tooltip"] == r"kernel run\nscale<<<cdiv(n, 256), 256>>>\nargs: x, y, gain, n"


def test_long_second_lines_are_cut_in_the_label_only():
    g = Definition()
    g.memcpy(g.device_array("x" * 50, 4, np.int32), g.device_array("y" * 50, 4, np.int32), name="copy")
    node = parsed(to_dot(g)).nodes["copy"]
    assert "…" in node["label"]
    assert "x" * 50 not in node["label"]
    assert "x" * 50 in node["tooltip"]


def test_scopes_become_nested_clusters_in_the_order_of_declaration():
    g = Definition()
    for layer in ("layer10", "layer2"):
        with g.scope(layer):
            first = g.empty(name="first")
            with g.scope("inner"):
                first >> g.empty(name="second")
            g.empty(name="third")
    found = parsed(to_dot(g)).clusters
    assert list(found) == ["cluster layer10", "cluster layer2"]
    assert found["cluster layer2"] == (
        {"layer2/first", "layer2/inner/second", "layer2/third"},
        {"cluster layer2/inner": ({"layer2/inner/second"}, {})},
    )
    assert {"layer2", "inner", "second"} <= set(texts(g))


def test_equal_names_of_scopes_and_nodes_stay_apart():
    g = Definition()
    g.empty(name="a")
    g.empty(name="a/a")
    g.empty(name="a/a/a")
    drawn = parsed(to_dot(g))
    assert list(drawn.nodes) == ["a", "a/a", "a/a/a"]
    assert drawn.clusters == {"cluster a": ({"a/a", "a/a/a"}, {"cluster a/a": ({"a/a/a"}, {})})}


def test_an_empty_graph_can_be_drawn():
    assert texts(Definition("nothing")) == ["nothing", "0 nodes, 0 edges"]


def test_the_text_does_not_depend_on_the_process():
    code = (
        "from tests.draw.graphs import demo\n"
        "from graphdsl.draw.dot import to_dot\n"
        "g = demo()\n"
        "g.edge(g.node('store'), g.node('run'))\n"
        "print(to_dot(g, operands=True))\n"
    )
    paths = ":".join(path for path in sys.path if path)
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1


# What is wrong


def test_nodes_with_errors_are_red_with_their_codes():
    findings = [finding("run", code="GD204"), finding("run", "load"), finding("run", code="GD204")]
    dot_text = to_dot(demo(), findings=findings)
    assert red_nodes(dot_text) == ["load", "run"]
    assert {"GD204 GD201", "GD201", "error"} <= set(texts(demo(), findings=findings))
    assert parsed(dot_text).nodes["run"]["tooltip"].endswith(r"\nerrors: GD204 GD201")


def test_edges_of_a_plan_are_dashed_and_counted():
    graph = chain("a", "b", "c")
    names = list(graph.dag)
    found = parsed(to_dot(graph, planned=[(names[0], names[2])]))
    assert found.edges[names[0], names[2]]["style"] == "dashed"
    assert "lane" in found.edges[names[0], names[2]]["tooltip"]
    assert "1 edge added by the plan (dashed)" in to_dot(graph, planned=[(names[0], names[2])])
    assert "added by the plan" not in to_dot(graph)


def test_warnings_and_findings_without_a_node_change_nothing():
    harmless = [finding("run", severity="warning"), finding("run", severity="advice"), finding()]
    assert to_dot(demo(), findings=harmless) == to_dot(demo())


def test_the_edges_of_a_cycle_are_red():
    g = demo()
    g.edge(g.node("log"), g.node("run"))
    assert red_edges(to_dot(g)) == {("run", "store"), ("store", "log"), ("log", "run")}
    assert render(to_dot(g), "svg")


def test_an_edge_to_itself_is_red():
    g = chain("a", "b")
    g.edge(g.node("b"), g.node("b"))
    assert red_edges(to_dot(g)) == {("b", "b")}


def test_an_edge_declared_twice_says_so():
    g = chain("a", "b", "c")
    g.edge(g.node("a"), g.node("b"))
    assert red_edges(to_dot(g)) == {("a", "b")}
    assert "2 times" in texts(g)


def test_edges_to_another_graph_are_drawn_to_a_ghost():
    g, other = chain("a", "far"), Definition("other")
    far = other.empty(name="far")
    g.edge(far, g.node("a"))
    g.edge(g.node("far"), far)
    (ghost,) = set(parsed(to_dot(g)).nodes) - {"a", "far"}
    assert red_edges(to_dot(g)) == {(ghost, "a"), ("far", ghost)}
    assert "of graph other" in texts(g)


# Operands


def test_operands_are_drawn_when_asked_for():
    g = demo()
    drawn = parsed(to_dot(g, operands=True))
    shapes = [look["shape"] for look in drawn.nodes.values() if look["class"] == "operand"]
    assert sorted(shapes) == ["cylinder", "cylinder", "folder", "folder"]
    assert "float32[1024] device" in texts(g, operands=True)
    assert len(parsed(to_dot(g)).nodes) == len(drawn.nodes) - 4


def test_copies_point_from_source_to_destination_and_kernels_nowhere():
    drawn = parsed(to_dot(demo(), operands=True))

    def line(*ends):
        return drawn.edges[tuple(rf"operand\ {end[1:]}" if end[0] == "$" else end for end in ends)]["dir"]

    assert line("$raw", "load") == line("load", "$x") == line("clear", "$y") == line("store", "$out") == "forward"
    assert line("$x", "run") == line("$y", "run") == line("$out", "log") == "none"


def test_a_copy_inside_one_buffer_points_both_ways():
    g = Definition()
    x = g.device_array("x", 8, np.int32)
    g.memcpy(x[:4], x[4:], name="copy")
    (line,) = parsed(to_dot(g, operands=True)).edges.values()
    assert line["dir"] == "both"


def test_buffers_of_another_graph_are_not_drawn():
    g = Definition()
    g.memset(Definition("other").device_array("x", 8, np.int32), 0, name="clear")
    assert list(parsed(to_dot(g, operands=True)).nodes) == ["clear"]


def test_operands_and_nodes_of_one_name_stay_apart():
    g = Definition()
    x = g.device_array("x", 8, np.int32)
    for name in ("x", "operand x", r"operand\ x"):
        g.memset(x, 0, name=name)
    assert len(parsed(to_dot(g, operands=True)).nodes) == 4


# Names

NAMES = st.text(
    st.one_of(st.sampled_from("\"\\<>&;{}[]|: /'%#,=nNGlr"), st.characters(exclude_categories=["Cs"])), min_size=1
).filter(str.isprintable)


@settings(max_examples=200, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_any_name_survives_the_way_through_graphviz(names):
    g = chain(*names)
    drawn = parsed(to_dot(g, operands=True))
    assert sorted(map(read, drawn.nodes)) == sorted(names)


@settings(max_examples=60, deadline=None)
@given(NAMES)
def test_any_name_is_shown_as_it_is(name):
    g = Definition(name)
    with g.scope("scope"):
        x = g.device_array(name, 4, np.int32)
    g.memset(x, 0, name=name.replace("/", "") or "n")
    shown = texts(g, operands=True)
    for text in (name, f"scope/{name}", name.replace("/", "") or "n"):
        assert text.strip() in shown
    assert read(parsed(to_dot(g)).name) == name


def test_entities_and_escapes_in_names_mean_nothing():
    name = r"a&lt;b \N \l &#65; <B>x</B>"
    g = chain(name)
    assert name in texts(g) or name.rpartition("/")[2] in texts(g)
    assert parsed(to_dot(g)).nodes[name.replace("\\", r"\\")]["tooltip"].startswith(r"empty a&amp;lt;b \\N")


# Pictures


@pytest.mark.parametrize(
    ("format", "start"),
    [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("dot", b'digraph "demo"'), ("gv", b'digraph "demo"')],
)
def test_every_format_is_what_it_says(format, start, tmp_path):
    path = tmp_path / f"picture.{format.upper()}"
    assert write(to_dot(demo()), str(path)) == path
    assert path.read_bytes().startswith(start)
    assert format in FORMATS


@pytest.mark.parametrize("path", ["picture.bmp", "picture"])
def test_an_unknown_suffix_names_the_formats_and_writes_nothing(path, tmp_path):
    with pytest.raises(DeclarationError, match="svg, png, pdf, dot, gv"):
        write(to_dot(demo()), tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_a_large_graph_bounds_the_effort_of_the_layout():
    few, many = (chain(*map(str, range(count))) for count in (MANY_NODES - 1, MANY_NODES))
    assert "nslimit" not in parsed(to_dot(few)).attributes
    assert parsed(to_dot(many)).attributes["nslimit"] == "0.02"
    assert render(to_dot(many), "svg").count(b'class="node empty"') == MANY_NODES


def test_a_graphviz_that_does_not_load_is_said_with_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    with pytest.raises(GraphdslError, match="GLib"):
        render("digraph {}", "svg")
    assert render("digraph {}", "dot") == b"digraph {}"


def test_a_picture_that_cannot_be_written_is_one_error(tmp_path):
    with pytest.raises(DeclarationError, match="could not be written") as caught:
        write("digraph {}", tmp_path / "missing" / "graph.svg")
    assert caught.value.field == "path"


@pytest.mark.parametrize("path", [None, 3, b"x.svg", ["x.svg"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(DeclarationError, match="written to a path") as caught:
        write(to_dot(Definition()), path)
    assert caught.value.field == "path"


@pytest.mark.parametrize("name", ["/", "a/", "/b", "a//b"])
def test_empty_parts_of_a_name_are_no_error(name, capfd):
    g = Definition("g")
    g.empty(name=name)
    assert render(to_dot(g), "svg").startswith(b"<?xml")
    assert "syntax error" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["back\\slash", 'quo"te', "100%", "%n", "a<b>&c", "a|{b}", "ü"])
def test_a_body_of_any_name_is_found_by_the_line_to_it(name, capfd):
    g = Definition("demo")
    with g.if_(g.condition("c", default=1), name=name) as body:
        body.empty(name="step")
    render(to_dot(g), "svg")
    assert "not found" not in capfd.readouterr().err


def test_a_body_that_is_a_cycle_is_drawn():
    g = Definition("demo")
    with g.while_(g.condition("c", default=1), name="loop") as body:
        a, b = body.empty(name="a"), body.empty(name="b")
        a >> b >> a
    drawn = to_dot(g)
    assert ("loop", "loop/a") in parsed(drawn).edges
    assert red_edges(drawn) == {("loop/a", "loop/b"), ("loop/b", "loop/a")}
