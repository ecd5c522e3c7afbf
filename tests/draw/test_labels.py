import io

import numpy as np
import pytest
from rich.console import Console

from graphdsl.declare.attributes import AccessPolicy
from graphdsl.declare.definition import Definition
from graphdsl.draw.dot import to_dot
from graphdsl.draw.labels import bytes_text, dims_text, essentials, operand_text, scope_path, short_name
from graphdsl.draw.terminal import levels, operands, tree
from tests.draw.graphs import demo, scale


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("load", "raw → x, 4 KiB"),
        ("clear", "y = 0"),
        ("run", "scale<<<cdiv(n, 256), 256>>>"),
        ("store", "y → out, n * 4 bytes"),
        ("log", "log()"),
        ("end", ""),
    ],
)
def test_essentials_say_what_each_kind_does(node, text):
    assert essentials(demo().node(node)) == text


def test_a_launch_shows_all_dimensions_and_dynamic_shared_memory():
    g = Definition()
    n = g.param("n", np.int64)
    node = g.kernel(scale, grid=(n + 1, 4), block=(32, 1, 2), shared_bytes=2048)
    assert essentials(node) == "scale<<<(n + 1, 4), (32, 1, 2), 2 KiB>>>"


def test_a_launch_shows_its_attributes():
    g = Definition()
    x = g.device_array("x", 8, np.float32)
    node = g.kernel(
        scale, grid=8, block=32, cooperative=True, cluster=2, preferred_cluster=(4, 2), access_policy=AccessPolicy(x)
    )
    assert essentials(node) == (
        "scale<<<8, 32>>> access_policy=x 1 persisting, else streaming, cooperative, cluster=2, "
        "preferred_cluster=(4, 2)"
    )
    assert essentials(g.kernel(scale, grid=8, block=32, priority=-1)) == "scale<<<8, 32>>> priority=-1"


def test_a_host_function_without_a_name_shows_its_type():
    class Recorder:
        def __call__(self):
            pass

    assert essentials(Definition().host(Recorder())) == "Recorder()"


def test_operands_are_shown_as_written():
    g = Definition()
    n, x = g.param("n", np.int32), g.device_array("x", 8, np.float32)
    assert [operand_text(each) for each in (x, x[2:n], n, n * 2, (n * 2, 1.5))] == [
        "x",
        "x[2:n]",
        "n",
        "n * 2",
        "(n * 2, 1.5)",
    ]


def test_a_param_whose_name_looks_like_an_expression_keeps_its_name():
    assert operand_text(Definition().param("(n", np.int32)) == "(n"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1536, "1,536 B"),
        (5 << 20, "5 MiB"),
        (3 << 30, "3 GiB"),
    ],
)
def test_bytes_are_never_rounded(size, text):
    assert bytes_text(size) == text


def test_only_trailing_ones_are_left_out_of_dimensions():
    assert [dims_text(dims) for dims in ((1, 1, 1), (1, 2, 1), (1, 1, 3))] == ["1", "(1, 2)", "(1, 1, 3)"]


@pytest.mark.parametrize(
    ("name", "scope", "short"),
    [("a", (), "a"), ("s/a", ("s",), "a"), ("s/t/a", ("s", "t"), "a"), ("s/", ("s",), "s/"), ("/a", (), "/a")],
)
def test_a_node_is_named_inside_its_scope(name, scope, short):
    node = Definition().empty(name=name)
    assert (scope_path(node), short_name(node)) == (scope, short)


def test_a_number_that_would_fill_pages_is_told_by_its_size():
    assert operand_text((10**5000, 1)) == "(an integer of 16610 bits, 1)"


def test_copies_of_rows_say_how_many():
    graph = Definition()
    n = graph.param("n", np.int32)
    cube = graph.device_array("cube", (4, 8, 16), np.float32)
    part = graph.host_array("part", (4, 8, 16), np.float32)
    assert essentials(graph.memcpy(part[0, :n, :4], cube[0, :n, :4])).endswith(", n rows of 16 B")
    assert essentials(graph.memcpy(part[:, :2, :4], cube[:, :2, :4])).endswith(", 4 slices of 2 rows of 16 B")
    assert essentials(graph.memcpy(part[0], cube, name="wrong")).endswith(", 512 B")


def test_the_device_is_told_where_there_are_several():
    g = Definition()
    x = g.device_array("x", 4, np.float32)
    with g.on(1):
        y = g.device_array("y", 4, np.float32)
    g.memset(x, 0)
    g.memcpy(y, x)
    assert "device 1" in to_dot(g)
    assert "x&#160;=&#160;0, device" not in to_dot(g)
    assert "float32[4]&#160;device&#160;1" in to_dot(g, operands=True)
    console = Console(width=120, record=True, file=io.StringIO())
    for shown in (levels(g), tree(g), operands(g)):
        console.print(shown)
    assert console.export_text().count("device 1") == 3


def test_one_device_is_not_told():
    g = Definition()
    with g.on(1):
        g.memset(g.device_array("y", 4, np.float32), 0)
    assert "device 1" not in to_dot(g)
