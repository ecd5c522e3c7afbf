"""GD601 to GD605: nodes that touch the same memory in no order."""

from __future__ import annotations

import copy
import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl.check import check
from graphdsl.check.conflicts import Conflicts
from graphdsl.check.masks import Verdict
from graphdsl.check.outline import Outline
from graphdsl.check.touched import Touched
from graphdsl.declare.ancestry import insides
from tests.check.conftest import scale
from tests.check.findings import cheap


def hazards(graph, **options):
    return [found for found in cheap(graph, **options) if found.code.startswith("GD6") and found.code < "GD606"]


def pairs(graph, **options):
    return [(found.code, *found.nodes) for found in hazards(graph, **options)]


@pytest.fixture
def g():
    return gd.Graph("demo")


class TestPairs:
    def test_all_of_it_is_said(self, demo):
        demo.g.memcpy(demo.x, demo.raw, name="load")
        demo.g.memcpy(demo.y, demo.x[256:], nbytes=1024, name="copy")
        (found,) = hazards(demo.g)
        assert (found.code, found.severity, found.node, found.nodes) == ("GD601", "error", "copy", ("load", "copy"))
        assert found.field == "source"
        assert found.value == "x[256:], bytes 1024 to 2048 of x"
        assert found.location == demo.g.node("copy").location
        line = demo.g.node("load").location[1]
        assert found.rule == (
            f"RAW: 'load' writes it (test_hazards.py:{line}), 'copy' reads it, and nothing orders them"
        )
        assert found.remedy == "Add the edge load >> copy, or say why none is needed with independent."

    def test_kinds(self, demo):
        demo.g.memcpy(demo.y, demo.x, name="copy")
        demo.g.memset(demo.x, 0, name="clear")
        demo.g.memset(demo.y, 0, name="again")
        assert [(found.nodes, found.rule[:3]) for found in hazards(demo.g)] == [
            (("copy", "clear"), "WAR"),
            (("copy", "again"), "WAW"),
        ]

    def test_order_is_all_that_is_asked_for(self, demo):
        a = demo.g.memset(demo.x, 0, name="a")
        b = demo.g.memcpy(demo.y, demo.x, name="b")
        c = demo.g.memset(demo.x, 1, name="c")
        a >> demo.g.empty(name="between") >> b
        assert pairs(demo.g) == [("GD601", "a", "c"), ("GD601", "b", "c")]
        b >> c
        assert pairs(demo.g) == []

    def test_what_an_edge_against_the_declaration_orders(self, demo):
        a = demo.g.memset(demo.x, 0, name="a")
        demo.g.memset(demo.x, 0, name="b")
        c = demo.g.memset(demo.y, 0, name="c")
        d = demo.g.memset(demo.x, 0, name="d")
        c >> a
        assert pairs(demo.g) == [("GD601", "a", "b"), ("GD601", "a", "d"), ("GD601", "b", "d")]
        d >> a
        assert pairs(demo.g) == [("GD601", "d", "b"), ("GD601", "a", "b")], "what comes before a comes before b"

    def test_cycles_are_left_to_their_rule(self, demo):
        a, b = demo.g.memset(demo.x, 0, name="a"), demo.g.memset(demo.x, 0, name="b")
        a >> b >> a
        assert pairs(demo.g) == []

    def test_readers_and_single_nodes_are_in_no_conflict(self, demo):
        demo.g.memcpy(demo.y, demo.x)
        demo.g.memcpy(demo.raw, demo.x)
        assert pairs(demo.g) == []

    def test_instantiate_refuses_it(self, demo):
        demo.g.memset(demo.x, 0, name="a")
        demo.g.memcpy(demo.raw, demo.x, name="b")
        with pytest.raises(gd.CheckError, match=r"GD601.*a >> b"):
            demo.g.instantiate(gd.emulator())


class TestBytes:
    def test_views_of_other_bytes(self, demo):
        demo.g.memset(demo.x[:512], 0, name="low")
        demo.g.memset(demo.x[512:], 0, name="high")
        demo.g.memset(demo.x[511:513], 0, name="both")
        assert [found.value for found in hazards(demo.g)] == [
            "x[511:513], bytes 2044 to 2048 of x",
            "x[511:513], bytes 2048 to 2052 of x",
        ]

    def test_columns_of_one_matrix(self, demo):
        for column in range(4):
            demo.g.memset(demo.table[:, column::8], 0, name=f"column{column}")
        assert pairs(demo.g) == []
        demo.g.memset(demo.table[:, 2:4], 0, name="two")
        assert pairs(demo.g) == [("GD601", "column2", "two"), ("GD601", "column3", "two")]
        assert hazards(demo.g)[0].value.endswith("of table, with gaps")

    def test_rows_that_a_kernel_touches(self, demo):
        def halve(x):
            i = cuda.grid(1)
            if i < x.shape[0]:
                x[i, 0] = x[i, 1] / 2

        for name, view in (("left", demo.table[:, :8]), ("right", demo.table[:, 8:]), ("all", demo.table)):
            demo.g.kernel(halve, grid=1, block=32, args=view, name=name)
        assert pairs(demo.g) == [("GD601", "left", "all"), ("GD601", "right", "all")]

    def test_values_of_params_decide(self, demo):
        demo.g.memset(demo.x[: demo.n], 0, name="head")
        demo.g.memset(demo.x[1000:], 0, name="tail")
        assert pairs(demo.g, values={"n": 1000}) == []
        assert pairs(demo.g, values={"n": 1001}) == [("GD601", "head", "tail")]

    def test_a_param_without_a_value_is_a_guess(self, g):
        m = g.param("m", np.int32)
        x = g.device_array("x", 8, np.float32)
        g.memset(x[:m], 0, name="head")
        g.memset(x[4:], 0, name="tail")
        (found,) = hazards(g)
        assert (found.code, found.severity) == ("GD602", "warning")
        assert "whether they have a byte in common is not known" in found.rule

    def test_nothing_is_touched_by_no_elements(self, demo):
        demo.g.memset(demo.x[: demo.n], 0, name="none")
        demo.g.memset(demo.x, 0, name="all")
        assert pairs(demo.g, values={"n": 0}) == []


class TestExternals:
    def test_memory_that_two_names_have(self, g):
        data = np.zeros(16, np.float32)
        whole, half = g.external("whole", data), g.external("half", data[8:])
        g.memset(whole[:9], 0, name="low")
        g.memset(half, 0, name="high")
        (found,) = hazards(g)
        assert found.nodes == ("low", "high")
        assert found.value == "half, the memory of whole, bytes 0 to 4"

    def test_columns_of_one_array_have_two_names(self, g):
        data = np.zeros((8, 8), np.float32)
        left, right = g.external("left", data[:, :4]), g.external("right", data[:, 4:])
        g.memset(left, 0, name="a")
        g.memset(right, 0, name="b")
        assert pairs(g) == []
        g.memset(g.external("row", data[2]), 0, name="c")
        assert pairs(g) == [("GD601", "a", "c"), ("GD601", "b", "c")]

    def test_arrays_of_the_device(self, g):
        device = gd.emulator()
        data = gd.device_array(device, 16, np.float32)
        a, b = g.external("a", data), g.external("b", data)
        g.memset(a, 0, name="one")
        g.memset(b, 0, name="two")
        assert pairs(g) == [("GD601", "one", "two")]

    def test_a_chain_of_neighbours_is_one_memory(self, g):
        data = np.zeros(16, np.uint8)
        parts = [g.external(name, data[start : start + 6]) for start, name in ((0, "a"), (4, "b"), (8, "c"))]
        for part in parts:
            g.memset(part, 0, name=f"set_{part.name}")
        assert pairs(g) == [("GD601", "set_a", "set_b"), ("GD601", "set_b", "set_c")]


class TestLevels:
    @pytest.fixture
    def filling(self):
        inner = gd.Graph("inner")
        x = inner.device_array("x", 16, np.float32)
        inner.memset(x, 0, name="fill")
        return inner

    def test_the_edge_joins_the_nodes_of_one_level(self, g, filling):
        x, y = g.device_array("x", 16, np.float32), g.device_array("y", 16, np.float32)
        child = g.child(filling, {"x": x}, name="child")
        copy = g.memcpy(y, x, name="copy")
        (found,) = hazards(g)
        assert found.nodes == ("child/fill", "copy")
        assert "Add the edge child >> copy" in found.remedy
        child >> copy
        assert hazards(g) == []

    def test_two_children(self, g, filling):
        x = g.device_array("x", 16, np.float32)
        g.child(filling, {"x": x}, name="one")
        outer = gd.Graph("outer")
        outer.child(filling, {"x": outer.device_array("x", 16, np.float32)}, name="deep")
        g.child(outer, {"x": x}, name="two")
        (found,) = hazards(g)
        assert found.nodes == ("one/fill", "two/deep/fill")
        assert "one >> two" in found.remedy

    def test_of_two_bodies_one_alone_runs(self, g):
        x = g.device_array("x", 16, np.float32)
        branch = g.if_(g.condition("taken", default=1), name="branch")
        branch.bodies[0].memset(x, 0, name="yes")
        branch.otherwise.memset(x, 1, name="no")
        choice = g.switch(g.condition("which", default=0), 3, name="choice")
        for number, body in enumerate(choice.bodies):
            body.memset(x, number, name="set")
            nested = body.if_(g.condition(f"deep{number}", default=1), name="deep")
            nested.bodies[0].memset(x, 1, name="set")
            nested.otherwise.memset(x, 1, name="set")
        branch >> choice
        assert pairs(g) == [
            ("GD601", f"choice/{number}/set", f"choice/{number}/deep/{side}/set")
            for number in range(3)
            for side in ("then", "otherwise")
        ]

    def test_one_body_runs_one_time_after_the_other(self, g):
        x = g.device_array("x", 16, np.float32)
        with g.while_(g.condition("more", default=1), name="loop") as body:
            body.memset(x, 0, name="a")
        assert pairs(g) == []
        body.memset(x, 0, name="b")
        assert pairs(g) == [("GD601", "loop/a", "loop/b")]


class TestAccesses:
    def test_kernels_as_far_as_their_code_tells(self, demo):
        args = (demo.x, demo.y, demo.gain, demo.n)
        demo.g.kernel(scale, grid=4, block=256, args=args, name="scale")
        demo.g.memcpy(demo.raw, demo.x, name="reads")
        assert pairs(demo.g) == []
        demo.g.memset(demo.x, 0, name="writes")
        assert pairs(demo.g) == [("GD601", "scale", "writes"), ("GD601", "reads", "writes")]

    def test_what_cannot_be_known_is_a_warning(self, demo):
        demo.g.host(print, demo.raw, name="show")
        demo.g.memcpy(demo.x, demo.raw, name="load")
        (found,) = hazards(demo.g)
        assert (found.code, found.severity, found.nodes) == ("GD602", "warning", ("show", "load"))
        assert "; what 'show' does (" in found.rule
        assert found.rule.endswith(") is not known, and counts as reading and writing")
        with demo.g.instantiate(gd.emulator()):
            pass

    def test_what_is_said_counts(self, demo):
        demo.g.host(print, demo.raw, name="show", reads=[demo.raw], writes=[])
        demo.g.memcpy(demo.x, demo.raw, name="load")
        assert pairs(demo.g) == []
        demo.g.host(print, demo.raw, name="fill", reads=[], writes=[demo.raw])
        assert pairs(demo.g) == [("GD601", "show", "fill"), ("GD601", "load", "fill")]

    def test_atomic_operations_of_one_kind_are_advice(self, demo):
        def count(x, total):
            cuda.atomic.add(total, 0, x[cuda.grid(1)])

        def most(x, total):
            cuda.atomic.max(total, 0, x[cuda.grid(1)])

        for name, kernel in (("first", count), ("second", count), ("third", most)):
            demo.g.kernel(kernel, grid=1, block=1, args=(demo.x, demo.y), name=name)
        assert sorted(pairs(demo.g)) == [
            ("GD601", "first", "third"),
            ("GD601", "second", "third"),
            ("GD603", "first", "second"),
        ]

    def test_disabled_nodes_touch_nothing(self, demo):
        demo.g.memset(demo.x, 0, name="a")
        demo.g.memset(demo.x, 0, name="b")
        assert pairs(demo.g, disabled=["a"]) == []


class TestProgrammaticEdges:
    @staticmethod
    def pair(kernel, port):
        g = gd.Graph("pair")
        x = g.device_array("x", 32, np.float32)
        fill = g.memset(x, 0, name="fill")
        first, second = (g.kernel(kernel, grid=1, block=32, args=x, name=name) for name in ("first", "second"))
        fill >> first
        g.edge(first, second, programmatic=True, port=port)
        return g

    def test_the_wait_is_taken_for_granted_until_it_is_known(self):
        def plain(x):
            x[cuda.grid(1)] += 1

        def waits(x):
            gd.device.grid_dependency_wait()
            x[cuda.grid(1)] += 1

        assert pairs(self.pair(plain, "programmatic")) == []
        assert pairs(self.pair(waits, "launch_order")) == [("GD601", "first", "second")], "fill is before both starts"
        assert [found.code for found in check(self.pair(waits, "programmatic")).errors] == []
        known = self.pair(plain, "programmatic")
        known.node("second") >> known.memcpy(known.host_array("out", 32, np.float32), known.operands["x"], name="out")
        found = [(each.code, *each.nodes) for each in check(known).errors]
        assert found == [("GD117", "first", "second"), ("GD601", "first", "out")]


class TestIndependent:
    def test_it_keeps_pairs_out_and_lists_them_with_the_reason(self, demo):
        a, b, c = (demo.g.memset(demo.x, 0, name=name) for name in "abc")
        demo.g.independent(a, [b, c], why="all write 0")
        found = hazards(demo.g)
        assert [(each.code, each.severity, each.nodes) for each in found] == [
            ("GD601", "error", ("b", "c")),
            ("GD604", "advice", ("a", "b")),
        ]
        assert found[1].rule.endswith("(and 1 more such pairs); that is meant: all write 0")
        assert found[1].location[0] == __file__

    def test_one_list_twice_is_all_of_its_pairs(self, demo):
        nodes = [demo.g.memset(demo.x, 0) for _ in range(5)]
        demo.g.independent(nodes, nodes, why="all write 0")
        assert [each.code for each in hazards(demo.g)] == ["GD604"]

    def test_one_that_keeps_nothing_out_is_told(self, demo):
        a, b = demo.g.memset(demo.x, 0, name="a"), demo.g.memset(demo.y, 0, name="b")
        demo.g.independent(a, b, why="no reason")
        (found,) = hazards(demo.g)
        assert (found.code, found.severity, found.nodes, found.field) == ("GD605", "warning", ("a", "b"), "independent")
        assert found.value == "'a' and 'b'"
        assert hazards(demo.g, disabled=["a"]) == []

    def test_copies_of_a_graph_and_children_keep_it(self, demo):
        demo.g.independent(*(demo.g.memset(demo.x, 0, name=name) for name in "ab"), why="both write 0")
        assert pairs(copy.deepcopy(demo.g)) == [("GD604", "a", "b")]
        outer = gd.Graph("outer")
        outer.child(demo.g, name="inner")
        assert pairs(outer) == [("GD604", "inner/a", "inner/b")]
        assert outer.independents[0].why == "both write 0"

    def test_a_node_that_holds_others_stands_for_them(self, demo):
        outer = gd.Graph("outer")
        x = outer.device_array("x", 1024, np.float32)
        demo.g.memset(demo.x, 0, name="a")
        inner = outer.child(demo.g, {"x": x}, name="inner")
        outer.independent(outer.memset(x, 0, name="b"), inner, why="both write 0")
        assert pairs(outer) == [("GD604", "inner/a", "b")]

    @pytest.mark.parametrize("why", ["", "  ", None, 3])
    def test_a_reason_is_asked_for(self, demo, why):
        a, b = demo.g.memset(demo.x, 0), demo.g.memset(demo.x, 0)
        with pytest.raises(gd.DeclarationError, match="for a reason"):
            demo.g.independent(a, b, why=why)

    def test_nodes_of_other_graphs_are_refused(self, demo):
        other = gd.Graph("other")
        with pytest.raises(gd.DeclarationError, match="graph 'other'"):
            demo.g.independent(demo.g.empty(), other.empty(), why="they are")


class TestMany:
    def test_pairs_are_listed_in_the_order_of_the_program_and_the_rest_is_counted(self, g):
        x, y = g.device_array("x", 4, np.float32), g.device_array("y", 4, np.float32)
        for i in range(100):
            g.memset(x, 0, name=f"n{i}")
        g.memset(y, 0, name="y0")
        g.memset(y, 0, name="y1")
        found = hazards(g)
        assert len(found) == 18
        assert [each.nodes for each in found[:16]] == [("n0", f"n{i}") for i in range(1, 17)]
        assert found[16].rule.startswith(f"{100 * 99 // 2 - 16} more pairs")
        assert found[16].value == "x"
        assert found[17].nodes == ("y0", "y1")

    def test_many_buffers(self, g):
        for i in range(100):
            x = g.device_array(f"x{i}", 4, np.float32)
            g.memset(x, 0)
            g.memset(x, 0)
        found = hazards(g)
        assert len(found) == 33
        assert found[-1].rule.startswith("68 more pairs of nodes are in conflict over 68 other buffers")


# The audit against a search byte by byte


SIDE = 6
WIDE = (SIDE, SIDE)


@st.composite
def views(draw, array):
    """Part of a square of bytes: rows, columns, every other one."""

    def part():
        if draw(st.booleans()):
            return slice(None)
        start = draw(st.integers(0, SIDE - 1))
        return slice(start, draw(st.integers(start + 1, SIDE)), draw(st.integers(1, 3)))

    return array[part(), part()]


@st.composite
def graphs(draw):
    """A graph of memsets and copies of parts of a few buffers, two of which overlap, in bodies too; and its params."""
    g = gd.Graph("drawn")
    data = np.zeros(SIDE * SIDE + 9, np.uint8)
    buffers = [
        g.device_array("a", WIDE, np.uint8),
        g.external("b", data[: SIDE * SIDE].reshape(WIDE)),
        g.external("c", data[9:].reshape(WIDE)),
    ]
    levels = [g]
    for number in range(draw(st.integers(3, 9))):
        level = draw(st.sampled_from([g, *levels]))
        shape = draw(st.sampled_from(["set", "copy", "set", "copy", "set", "if", "child"]))
        name = f"n{number}"
        if shape == "if":
            node = level.if_(g.condition(f"c{number}", default=1), name=name)
            levels += node.bodies
        elif shape == "child":
            inner = gd.Graph("inner")
            inner.empty(name="nothing")
            node = level.child(inner, name=name)
            levels.append(node.body)
        elif shape == "set":
            node = level.memset(draw(views(draw(st.sampled_from(buffers)))), 1, name=name)
        else:
            node = level.memcpy(*(draw(views(draw(st.sampled_from(buffers)))) for _ in range(2)), name=name)
        for other in level.nodes[:-1]:
            if draw(st.integers(0, 5)) == 5:
                other >> node
    return g, {"a": 10_000, "b": 0, "c": 9}


def touched_bytes(array, bases):
    """The bytes of an array: by NumPy, from the places of all bytes of its buffer."""
    square = np.arange(SIDE * SIDE).reshape(WIDE)
    steps = [8 * step for step in array.strides]
    strided = np.lib.stride_tricks.as_strided(square.ravel()[array.offset :], array.shape, steps)
    return {bases[array.buffer.name] + int(each) for each in strided.ravel()}


def reads_and_writes(node, bases):
    destination, source = getattr(node, "destination", None), getattr(node, "source", None)
    written = set() if destination is None else touched_bytes(destination, bases)
    return set() if source is None else touched_bytes(source, bases), written


def unordered(g):
    """Pairs of nodes that can run at once or in any order: from the edges, with the graph made flat by networkx."""
    flat = nx.DiGraph()
    chains = {}

    def add(level, holders):
        for node in level.nodes:
            flat.add_edge(("begin", node.name), ("end", node.name))
            chains[node.name] = (*holders, (node.name, None))
            for number, body in enumerate(node.bodies):
                for inner in body.nodes:
                    flat.add_edge(("begin", node.name), ("begin", inner.name))
                    flat.add_edge(("end", inner.name), ("end", node.name))
                add(body, (*holders, (node.name, number)))
        for source, target in level.dag.edges:
            flat.add_edge(("end", source), ("begin", target))

    add(g, ())
    behind = {name: nx.descendants(flat, ("end", name)) for name in chains}

    def apart(one, other):
        bodies = dict(chains[one])
        kinds = {node.name: node.kind for node in g.all_nodes}
        return any(
            kinds[holder] == "conditional" and None not in (number, bodies.get(holder)) and bodies[holder] != number
            for holder, number in chains[other]
        )

    return [
        (one, other)
        for one, other in itertools.combinations(chains, 2)
        if ("begin", other) not in behind[one]
        and ("begin", one) not in behind[other]
        and not apart(one, other)
        and one not in dict(chains[other])
        and other not in dict(chains[one])
    ]


def brute_force(g, bases):
    """The pairs in conflict, by name."""
    touches = {node.name: reads_and_writes(node, bases) for node in g.all_nodes}
    found = set()
    for one, other in unordered(g):
        (reads, writes), (others_reads, others_writes) = touches[one], touches[other]
        if writes & (others_reads | others_writes) or reads & others_writes:
            found.add(frozenset((one, other)))
    return found


def audited(g, most=None):
    nodes = g.all_nodes
    addresses = {buffer: buffer.address for buffer in g.operands.values() if getattr(buffer, "address", None)}
    return Conflicts(Touched(nodes, {}, addresses), Outline(nodes, insides(g, nodes)), most=most)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_it_finds_what_a_search_byte_by_byte_finds(drawn):
    g, bases = drawn
    conflicts = audited(g)
    tallies = conflicts.of(Verdict.CERTAIN)
    found = [
        frozenset((conflict.first.name, conflict.second.name))
        for tally in tallies
        for conflict in map(conflicts.explained, tally.pairs)
    ]
    assert set(found) == brute_force(g, bases)
    assert len(conflicts.tallies) == len(tallies), "all of these bytes are known"
    assert all(tally.count == len(tally.pairs) for tally in tallies)


@settings(max_examples=50, deadline=None)
@given(graphs(), st.integers(1, 3))
def test_the_first_of_many_pairs_are_kept(drawn, most):
    g, _ = drawn
    all_of_them, some = audited(g), audited(g, most)
    assert some.tallies.keys() == all_of_them.tallies.keys()
    for key, tally in some.tallies.items():
        assert tally.pairs == all_of_them.tallies[key].pairs[:most]
        assert tally.count == all_of_them.tallies[key].count


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_blocks_of_few_nodes_find_the_same(drawn):
    g, _ = drawn
    whole = audited(g)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphdsl.check.conflicts.BLOCK", 2)
        patch.setattr("graphdsl.check.masks.BLOCK", 2)
        parts = audited(g)
    assert {key: tally.pairs for key, tally in parts.tallies.items()} == {
        key: tally.pairs for key, tally in whole.tallies.items()
    }
