"""Declaring operands, nodes and edges; names, scopes and sequences."""

from __future__ import annotations

import copy
import functools
import gc

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdsl.declare import store as module
from graphdsl.declare.definition import Definition
from graphdsl.declare.expressions import cdiv
from graphdsl.declare.nodes import EmptyNode, HostNode, KernelNode, MemcpyNode, MemsetNode
from graphdsl.errors import DeclarationError


def scale(x, n):
    pass


@pytest.fixture
def g():
    return Definition("demo")


@pytest.fixture
def x(g):
    return g.device_array("x", 1024, np.float32)


@pytest.fixture
def n(g):
    return g.param("n", np.int32, default=1024)


# Operands


def test_operands_are_found_by_name_in_the_order_of_declaration(g, x, n):
    h = g.host_array("h", (2, 3), np.complex64)
    w = g.external("w", np.zeros(4))
    assert g.operands == {"x": x, "n": n, "h": h, "w": w}
    assert list(g.operands) == ["x", "n", "h", "w"]


def test_host_arrays_are_pinned_unless_asked_otherwise(g):
    assert g.host_array("a", 1, np.int8).space == "pinned"
    assert g.host_array("b", 1, np.int8, pinned=False).space == "pageable"
    assert g.device_array("c", 1, np.int8).space == "device"


@pytest.mark.parametrize("declare", ["param", "device_array", "host_array", "external"])
def test_a_name_is_taken_once(g, x, declare):
    arguments = {"param": (np.int32,), "external": (np.zeros(3),)}.get(declare, (3, np.int32))
    with pytest.raises(DeclarationError, match="already has an operand") as caught:
        getattr(g, declare)("x", *arguments)
    assert caught.value.value == "'x'"
    assert caught.value.location == x.location
    assert g.operands == {"x": x}


@pytest.mark.parametrize("name", ["", None, 3, "a\nb", b"x"])
def test_names_are_printable(g, name):
    for declare in (lambda: g.param(name, np.int32), lambda: Definition(name), lambda: g.scope(name).__enter__()):
        with pytest.raises(DeclarationError, match="printable"):
            declare()
    if name is not None:
        with pytest.raises(DeclarationError, match="printable"):
            g.empty(name=name)


@pytest.mark.parametrize(
    ("shape", "wanted"), [(5, (5,)), ((2, 3), (2, 3)), ([4], (4,)), ((), ()), (np.int64(7), (7,)), (0, (0,))]
)
def test_shapes(g, shape, wanted):
    assert g.device_array("z", shape, np.int8).shape == wanted
    assert all(type(extent) is int for extent in g.operands["z"].shape)


@pytest.mark.parametrize("shape", [-1, (2, -1), 1.5, "3", None, True, (2, None), 2**63, 10**100])
def test_shapes_that_are_none(g, shape):
    with pytest.raises(DeclarationError, match="non-negative integers"):
        g.device_array("z", shape, np.int8)


def test_a_param_is_no_extent_of_a_buffer(g, n):
    with pytest.raises(DeclarationError, match="Declare the largest shape"):
        g.device_array("z", n, np.float32)


@pytest.mark.parametrize("dtype", [np.bool_, "i1", np.uint64, np.float16, "f4", float, int, complex, "M8[ns]", "m8[s]"])
def test_dtypes_of_params(g, dtype):
    assert g.param("p", dtype).dtype == np.dtype(dtype)


PAIR = [("key", np.int32), ("values", np.float32, 3)]
WRONG_DTYPES = [
    None,
    object,
    "S4",
    "U4",
    ">f4",
    "f3",
    np.longdouble,
    np.clongdouble,
    "V8",
    [],
    (np.float32, 3),
    "what",
    3,
]


@pytest.mark.parametrize("dtype", [*WRONG_DTYPES, PAIR], ids=str)
def test_dtypes_that_no_param_has(g, dtype):
    with pytest.raises(DeclarationError) as caught:
        g.param("p", dtype)
    assert caught.value.field == "dtype of p"
    assert g.operands == {}


@pytest.mark.parametrize("dtype", [*WRONG_DTYPES, [("a", np.int32), ("b", object)], [("a", "S3")]], ids=str)
def test_dtypes_that_no_buffer_has(g, dtype):
    with pytest.raises(DeclarationError) as caught:
        g.device_array("z", 4, dtype)
    assert caught.value.field == "dtype of z"


def test_structured_dtypes_of_buffers(g):
    nested = [("pair", PAIR), ("flag", np.bool_)]
    assert g.device_array("z", 4, nested).dtype == np.dtype(nested)


def test_external_memory_keeps_its_owner_its_strides_and_its_flags(g):
    owner = np.zeros((4, 6), np.int16)[:, ::2]
    owner.flags.writeable = False
    w = g.external("w", owner)
    assert w.owner is owner
    assert (w.shape, w.strides, w.dtype, w.space) == ((4, 3), (12, 4), np.int16, "pageable")
    assert (w.external, w.readonly, w.layout) == (True, True, "A")


@pytest.mark.parametrize("dtype", [object, "S4", ">f4", np.longdouble])
def test_external_memory_of_dtypes_that_no_device_knows(g, dtype):
    with pytest.raises(DeclarationError, match=r"a device (works on|has no) numbers"):
        g.external("w", np.zeros(3, dtype))
    assert g.operands == {}


@pytest.mark.parametrize(
    ("dtype", "why"),
    [
        ("S4", "works on numbers"),
        (">f4", "byte order"),
        (np.longdouble, "extended precision"),
        ([("a", ">i2")], "byte order"),
        ([("a", object, 3)], "works on numbers"),
        ((np.float32, 3), "shape"),
    ],
)
def test_what_is_wrong_with_a_dtype_is_said(g, dtype, why):
    with pytest.raises(DeclarationError, match=why):
        g.device_array("z", 3, dtype)


def test_external_memory_stays_where_it_is_while_the_graph_lives(g):
    owner = bytearray(16)
    w = g.external("w", owner)
    with pytest.raises(BufferError):
        owner.extend(b"more")
    assert w.owner is owner
    del w, g.operands["w"]
    gc.collect()  # a buffer refers to itself
    owner.extend(b"more")


# Nodes


def test_a_kernel_node(g, x, n):
    node = g.kernel(scale, grid=cdiv(n, 256), block=(16, 16), args=(x, n), shared_bytes=64, signature="void(int32)")
    assert isinstance(node, KernelNode)
    assert node.name == "scale"
    assert node.kernel.function is scale
    assert node.grid == (cdiv(n, 256), 1, 1)
    assert node.block == (16, 16, 1)
    assert (node.args, node.shared_bytes, node.signature) == ((x, n), 64, "void(int32)")
    assert node.operands() == (cdiv(n, 256), 1, 1, 16, 16, 1, 64, x, n)


def test_a_single_argument_may_stand_by_itself(g, x, n):
    assert g.kernel(scale, grid=1, block=1, args=x).args == (x,)
    assert g.kernel(scale, grid=1, block=1, args=n).args == (n,)
    assert g.kernel(scale, grid=1, block=1, args=3).args == (3,)
    assert g.kernel(scale, grid=1, block=1).args == ()
    assert g.kernel(scale, grid=1, block=1, args=iter([x, n])).args == (x, n)
    assert g.host(print, args=x).args == (x,)
    assert g.host(print, args="text").args == ("text",)


def test_arguments_by_name(g, x, n):
    assert g.kernel(scale, grid=1, block=1, args={"n": 3, "x": x}).args == (x, 3)
    with pytest.raises(DeclarationError, match=r"unknown 'y', 'z' and missing 'x'.*scale\(x, n\)") as caught:
        g.kernel(scale, grid=1, block=1, args={"y": x, "n": n, "z": 1}, name="k")
    assert (caught.value.node, caught.value.field) == ("k", "args")


@pytest.mark.parametrize("args", [{"x": 1}, {1, 2}, frozenset([1])])
def test_arguments_without_an_order_are_refused(g, args):
    with pytest.raises(DeclarationError, match="given in order"):
        g.host(print, args)
    if not isinstance(args, dict):
        with pytest.raises(DeclarationError, match="given in order"):
            g.kernel(scale, grid=1, block=1, args=args)


@pytest.mark.parametrize("args", ["text", b"text", bytearray(2), np.zeros(3), memoryview(b"ab"), 3, None, np.int8(3)])
def test_what_is_one_argument(g, args):
    (found,) = g.host(print, args).args
    assert found is args


@pytest.mark.parametrize("args", [(1, 2), [1, 2], iter([1, 2]), {1: 0, 2: 0}.keys(), range(1, 3)])
def test_what_is_several_arguments(g, args):
    assert g.host(print, args).args == (1, 2)


async def later():
    pass


async def items_later():
    yield


def items():
    yield


class Later:
    async def __call__(self):
        pass


@pytest.mark.parametrize("function", [later, items_later, items, Later(), Later().__call__, functools.partial(later)])
def test_functions_whose_call_runs_nothing_are_refused(g, function):
    with pytest.raises(DeclarationError, match="runs nothing"):
        g.host(function)
    if hasattr(function, "__code__") and not hasattr(function, "__self__"):
        with pytest.raises(DeclarationError, match="front to back"):
            g.kernel(function, grid=1, block=1)
    assert not g.nodes


def test_a_copy_node(g, x, n):
    h = g.host_array("h", 1024, np.float32)
    node = g.memcpy(x, h)
    assert isinstance(node, MemcpyNode)
    assert (node.name, node.destination, node.source, node.nbytes, node.size) == ("h_to_x", x, h, None, 4096)
    part = g.memcpy(x[:10], h[:10], nbytes=n)
    assert (part.nbytes, part.size) == (n, n)
    assert part.operands() == (part.destination, part.source, n)


def test_a_memset_node(g, x, n):
    node = g.memset(x, n)
    assert isinstance(node, MemsetNode)
    assert (node.name, node.destination, node.value) == ("set_x", x, n)
    assert node.operands() == (x, n)


def test_a_host_node(g, x):
    node = g.host(print, (x, 1, {"any": "thing"}))
    assert isinstance(node, HostNode)
    assert (node.name, node.function, node.args) == ("print", print, (x, 1, {"any": "thing"}))


def test_an_empty_node(g):
    node = g.empty()
    assert isinstance(node, EmptyNode)
    assert (node.name, node.kind, node.operands()) == ("empty", "empty", ())


def test_what_a_node_is(g):
    node = g.empty(name="a")
    assert g.node("a") is node
    assert node.definition is g
    assert node.location[0] == __file__
    assert repr(node) == "<empty 'a'>"
    assert g.nodes == [node]
    assert len(g) == 1


def test_the_location_is_the_line_of_the_declaration(g):
    first = g.empty()
    second = g.empty()
    assert second.location[1] == first.location[1] + 1


def test_a_directory_beside_the_package_is_not_the_package(g, monkeypatch):
    """Files in graphdsl_demo/ are the user's although their path begins as the package's does."""
    path = module._PACKAGE.rstrip("/\\") + "_demo/mine.py"
    names = {"g": g}
    exec(compile("node = g.empty()", path, "exec"), names)
    assert names["node"].location == (path, 1)


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), 1.5, "4", None, (1, None), [1, 2.0], True])
def test_grids_that_are_none(g, grid):
    with pytest.raises(DeclarationError) as caught:
        g.kernel(scale, grid=grid, block=1, name="run")
    assert (caught.value.node, caught.value.field) == ("run", "grid")
    assert len(g) == 0


def test_a_float_param_is_no_grid(g):
    with pytest.raises(DeclarationError, match="integer dtype"):
        g.kernel(scale, grid=g.param("gain", np.float32), block=1)


@pytest.mark.parametrize("nbytes", [1.5, "4", True])
def test_sizes_that_are_none(g, x, nbytes):
    with pytest.raises(DeclarationError) as caught:
        g.memcpy(x, x, nbytes=nbytes, name="copy")
    assert (caught.value.node, caught.value.field) == ("copy", "nbytes")


@pytest.mark.parametrize("operand", [np.zeros(3), None, 3, "x"])
def test_only_operands_are_copied_and_set(g, x, operand):
    for declare, field in (
        (lambda: g.memcpy(operand, x, name="it"), "destination"),
        (lambda: g.memcpy(x, operand, name="it"), "source"),
        (lambda: g.memset(operand, 0, name="it"), "destination"),
    ):
        with pytest.raises(DeclarationError, match="external") as caught:
            declare()
        assert (caught.value.node, caught.value.field) == ("it", field)
    assert len(g) == 0


def test_a_host_node_needs_a_function(g):
    with pytest.raises(DeclarationError, match="callable"):
        g.host("print")


# Names


def test_names_are_made_unique(g, x):
    assert [g.empty().name for _ in range(3)] == ["empty", "empty_1", "empty_2"]
    g.empty(name="set_x_1")
    assert [g.memset(x, 0).name for _ in range(3)] == ["set_x", "set_x_2", "set_x_3"]


def test_a_node_name_is_taken_once(g):
    first = g.empty(name="a")
    with pytest.raises(DeclarationError, match="already has a node") as caught:
        g.empty(name="a")
    assert (caught.value.node, caught.value.location) == ("a", first.location)
    assert g.nodes == [first]


def test_nodes_and_operands_have_names_of_their_own(g, x):
    assert g.empty(name="x").name == "x"


def test_names_of_lambdas_have_no_brackets(g):
    assert g.kernel(lambda: None, grid=1, block=1).name == "lambda"
    assert g.host(lambda: None).name == "lambda_1"


def test_callables_without_a_name(g):
    import functools

    assert g.host(functools.partial(print, 1)).name == "host"


@pytest.mark.parametrize("name", [3, "", "a\nb", "<>", None])
def test_names_of_functions_that_cannot_be_printed(g, name):
    class Function:
        __name__ = name

        def __call__(self):
            pass

    assert g.host(Function()).name == "host"


def test_the_name_of_a_kernel_that_cannot_be_printed(g):
    def odd():
        pass

    odd.__name__ = "a\nb"
    assert g.kernel(odd, grid=1, block=1).name == "kernel"


def test_an_unknown_node_suggests_close_names(g):
    g.empty(name="scale")
    with pytest.raises(DeclarationError, match="scale") as caught:
        g.node("sclae")
    assert caught.value.value == "'sclae'"
    with pytest.raises(DeclarationError, match="no node at all"):
        Definition().node("a")


def test_scopes_prefix_nodes_and_operands(g):
    with g.scope("layer0"):
        w = g.device_array("w", 4, np.float32)
        a = g.memset(w, 0)
        with g.scope("inner"):
            b = g.empty(name="b")
    c = g.empty()
    assert (w.name, a.name, b.name, c.name) == ("layer0/w", "layer0/set_w", "layer0/inner/b", "empty")
    assert (a.scope, b.scope, c.scope) == ("layer0", "layer0/inner", "")


def test_a_scope_and_a_sequence_may_be_entered_again(g):
    scope, sequence = g.scope("s"), g.sequence()
    for name in ("a", "b"):
        with scope, sequence:
            g.empty(name=name)
            g.empty(name=f"{name}_next")
    with scope, scope:
        assert g.empty(name="c").name == "s/s/c"
    assert list(g.dag.edges) == [("s/a", "s/a_next"), ("s/b", "s/b_next")]


def test_a_scope_ends_with_an_exception(g):
    with pytest.raises(ValueError, match="stop"), g.scope("layer0"):
        raise ValueError("stop")
    assert g.empty().name == "empty"


# Edges


@pytest.fixture
def nodes(g):
    return [g.empty(name=name) for name in "abcdef"]


def edges(g):
    return sorted(g.dag.edges)


def test_chains(g, nodes):
    a, b, c, d, _e, _f = nodes
    assert a >> b >> c is c
    assert d.after(a, [b, c]) is d
    assert edges(g) == [("a", "b"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")]


def test_chains_with_lists(g, nodes):
    a, b, c, d, e, f = nodes
    [a, b] >> c >> [d, e] >> f
    assert edges(g) == [("a", "c"), ("b", "c"), ("c", "d"), ("c", "e"), ("d", "f"), ("e", "f")]


def test_lists_may_be_nested_and_of_any_kind(g, nodes):
    a, b, c, d, _e, _f = nodes
    (a, [b, (c,)]) >> d
    assert edges(g) == [("a", "d"), ("b", "d"), ("c", "d")]
    g.edge((node for node in (a, b)), c)
    assert ("a", "c") in g.dag.edges


def test_an_empty_list_in_a_chain_is_passed_over(g, nodes):
    a, b, c, *_ = nodes
    a >> [] >> b
    [] >> c
    assert edges(g) == [("a", "b")]


def test_after_at_declaration(g, nodes):
    a, b, *_ = nodes
    befores = [a]
    g.empty(name="x", after=befores)
    g.empty(name="y", after=a)
    g.empty(name="z", after=(a, [b]))
    assert edges(g) == [("a", "x"), ("a", "y"), ("a", "z"), ("b", "z")]
    assert befores == [a]


@pytest.mark.parametrize("other", ["b", 3, None, [None], object()])
def test_edges_join_nodes(g, nodes, other):
    for join in (
        lambda: g.edge(nodes[0], other),
        lambda: g.edge([nodes[1], other], nodes[0]),
        lambda: nodes[0] >> other,
    ):
        with pytest.raises(DeclarationError, match="an edge joins nodes"):
            join()
    assert edges(g) == []


def test_edges_remember_where_they_were_declared(g, nodes):
    a, b, *_ = nodes
    a >> b
    g.edge(a, b)
    first, second = g.dag.edges["a", "b"]["locations"]
    assert first[0] == second[0] == __file__
    assert second[1] == first[1] + 1


def test_cycles_and_self_edges_are_recorded_for_the_check(g, nodes):
    a, b, *_ = nodes
    a >> b >> a >> a
    assert edges(g) == [("a", "a"), ("a", "b"), ("b", "a")]


def test_edges_to_nodes_of_other_graphs_are_recorded_at_both_ends_for_the_check(g, nodes):
    other = Definition("other")
    stranger = other.empty(name="stranger")
    nodes[0] >> stranger
    (kept,) = g.dag.nodes["a"]["foreign"]
    assert kept[:2] == (nodes[0], stranger)
    assert other.dag.nodes["stranger"]["foreign"] == [kept]
    assert edges(g) == edges(other) == []


@pytest.mark.parametrize("turn", [list, lambda nodes: list(reversed(nodes))])
def test_lists_that_hold_nodes_of_other_graphs_are_recorded_for_the_check(g, nodes, turn):
    a, b, *_ = nodes
    stranger = Definition("other").empty(name="z")
    turn([stranger, a]) >> b
    b >> turn([stranger, a])
    assert sorted(g.dag.edges) == [("a", "b"), ("b", "a")]
    ends = [(source, target) for source, target, _ in g.dag.nodes["b"]["foreign"]]
    assert ends == [(stranger, b), (b, stranger)]


def test_an_edge_that_is_refused_records_nothing(g, nodes):
    a, *_ = nodes
    y, z = (Definition("other").empty(name=name) for name in "yz")
    with pytest.raises(DeclarationError, match="y >> z"):
        g.edge([a, y], z)
    assert "foreign" not in g.dag.nodes["a"]
    assert "foreign" not in z.definition.dag.nodes["z"]


def test_a_graph_records_no_edges_between_others(g, nodes):
    with pytest.raises(DeclarationError, match="joins nodes of it"):
        Definition("other").edge(nodes[0], nodes[1])


def test_a_sequence_chains_what_is_declared_inside(g):
    g.empty(name="before")
    with g.sequence():
        g.empty(name="a")
        g.empty(name="b")
        with g.sequence():
            g.empty(name="c")
            g.empty(name="d")
        g.empty(name="e")
    g.empty(name="behind")
    assert edges(g) == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]


def test_what_a_sequence_implies_may_be_said(g):
    with g.sequence():
        a = g.empty(name="a")
        g.empty(name="b", after=a)
    assert g.dag.edges["a", "b"]["locations"] == (g.node("b").location,)


def test_a_sequence_ends_with_an_exception(g):
    with pytest.raises(DeclarationError), g.sequence():
        g.empty(name="a", after=g.empty(name="b").after(g.node("unknown")))
    g.empty(name="c")
    assert list(g.dag) == ["b", "c"]
    assert edges(g) == []


# networkx


def test_to_networkx_is_a_copy(g, nodes):
    a, b, *_ = nodes
    a >> b
    copy = g.to_networkx()
    assert isinstance(copy, nx.DiGraph)
    assert copy.graph["name"] == "demo"
    assert copy.nodes["a"] == {"kind": "empty", "scope": "", "tags": frozenset(), "node": a}
    assert list(copy.edges) == [("a", "b")]
    copy.remove_node("a")
    assert "a" in g.dag


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_the_dag_is_what_was_declared(pairs):
    g = Definition()
    nodes = [g.empty(name=str(i)) for i in range(7)]
    for before, after in pairs:
        nodes[before] >> nodes[after]
    assert set(g.to_networkx().edges) == {(str(a), str(b)) for a, b in pairs}
    assert len(g) == 7
    assert repr(g) == f"<Definition 'graph': 7 nodes, {len(set(pairs))} edges>"


@pytest.mark.parametrize(
    "change",
    [
        lambda dag: dag.add_node("b"),
        lambda dag: dag.add_edge("a", "b"),
        lambda dag: dag.remove_node("a"),
        lambda dag: dag.clear(),
    ],
)
def test_the_dag_is_changed_by_the_graph_alone(g, change):
    g.empty(name="a")
    with pytest.raises(nx.NetworkXError, match="Frozen"):
        change(g.dag)
    assert list(g.dag) == ["a"]


# Copies


def test_a_graph_is_not_copied_in_part(g, x):
    with pytest.raises(DeclarationError, match="deepcopy"):
        copy.copy(g)


def test_a_deep_copy_is_a_graph_of_its_own(g, x, n):
    owner = bytearray(8)
    w = g.external("w", owner)
    a = g.kernel(scale, grid=cdiv(n, 4), block=4, args=(x, n), name="a")
    b = g.memcpy(w, x, nbytes=8, name="b")
    a >> b
    made = copy.deepcopy(g)
    c = made.empty(name="c")
    made.node("b") >> c
    assert (list(g.dag.edges), list(made.dag.edges)) == ([("a", "b")], [("a", "b"), ("b", "c")])
    assert made.node("a").args == (made.operands["x"], made.operands["n"])
    assert made.node("a").grid[0].params == {made.operands["n"]}
    assert made.node("a").kernel is a.kernel
    assert made.operands["w"].owner is owner
    assert all(operand.definition is made for operand in (*made.operands.values(), *made.nodes))


@pytest.mark.parametrize(
    ("shape", "dtype", "pitch", "strides"),
    [
        ((8, 16), np.float32, 64, (64, 4)),
        ((8, 16), np.float32, 68, (68, 4)),
        ((8, 16), np.float32, np.int64(128), (128, 4)),
        ((8, 16), np.float32, "auto", (512, 4)),
        ((8, 128), np.float32, "auto", (512, 4)),
        ((8, 129), np.float32, "auto", (1024, 4)),
        ((3, 8, 16), np.uint8, "auto", (4096, 512, 1)),
        ((2, 3, 8, 16), np.uint8, 20, (480, 160, 20, 1)),
        ((8, 0), np.uint8, "auto", (512, 1)),
        ((8, 2), [("a", np.uint8), ("b", np.uint16)], 7, (7, 3)),
    ],
)
def test_rows_of_a_pitch(shape, dtype, pitch, strides):
    x = Definition().device_array("x", shape, dtype, pitch=pitch)
    assert (x.shape, x.strides) == (shape, strides)
    whole = shape[-1] * x.dtype.itemsize == strides[-2]
    assert x.layout == ("C" if whole or 0 in shape else "A")


@pytest.mark.parametrize(
    ("shape", "pitch", "rule"),
    [
        (16, 64, "two dimensions"),
        ((), "auto", "two dimensions"),
        ((8, 16), 63, "no shorter than a row of 64 bytes"),
        ((8, 16), 66, "multiple of 4 bytes"),
        ((8, 16), 0, "no shorter"),
        ((8, 16), -64, "no shorter"),
        ((8, 16), True, "no shorter"),
        ((8, 16), 64.0, "multiple"),
        ((8, 16), "wide", "multiple"),
        ((8, 16), 2**63, "multiple"),
    ],
)
def test_pitches_that_no_array_has(shape, pitch, rule):
    with pytest.raises(DeclarationError, match=rule) as caught:
        Definition().device_array("x", shape, np.float32, pitch=pitch)
    assert caught.value.field == "pitch of x"
    assert caught.value.remedy
