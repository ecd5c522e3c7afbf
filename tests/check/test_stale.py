"""GD703: who reads what only a disabled node would have written."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.check import check_disabled
from graphdsl.declare.ancestry import Inside
from tests.check.conftest import scale
from tests.check.findings import cheap, judged


@pytest.fixture
def chain():
    """``load`` writes x, ``copy`` reads it into y, ``store`` reads y."""
    g = gd.Graph("chain")
    raw, x, y, out = (g.host_array(name, 16, np.float32) for name in ("raw", "x", "y", "out"))
    with g.sequence():
        g.memcpy(x, raw, name="load")
        g.memcpy(y, x, name="copy")
        g.memcpy(out, y, name="store")
    return g


def test_the_reader_is_named_with_the_writer_the_field_and_the_bytes(chain):
    report = cheap(chain, disabled=["load"])
    assert judged(report) == [("GD703", "copy", "source")]
    assert report[0].nodes == ("copy", "load")
    assert report[0].value == "x, bytes 0 to 64"
    assert report[0].severity == "warning"
    assert report[0].location == chain.node("copy").location
    assert not judged(cheap(chain))


def test_patterns_choose_what_is_disabled(chain):
    assert judged(cheap(chain, disabled=["load", "c*"])) == [("GD703", "store", "source")]
    assert judged(cheap(chain, disabled="load")) == judged(cheap(chain, disabled=["load"]))
    assert not judged(cheap(chain, disabled=["*"]))
    with pytest.raises(gd.DeclarationError, match="laod"):
        cheap(chain, disabled=["laod"])


def test_a_reader_that_is_not_behind_the_writer_reads_nothing_stale(chain):
    chain.memcpy(chain.operands["out"], chain.operands["x"], name="elsewhere")
    assert [node for _, node, _ in judged(cheap(chain, disabled=["load"]))] == ["copy"]


def test_another_writer_before_the_reader_is_enough(chain):
    x = chain.operands["x"]
    clear = chain.memset(x, 0, name="clear")
    assert [node for _, node, _ in judged(cheap(chain, disabled=["load"]))] == ["copy"], "it is not before the reader"
    clear >> chain.node("load")
    assert not judged(cheap(chain, disabled=["load"]))
    assert [node for _, node, _ in judged(cheap(chain, disabled=["load", "clear"]))] == ["copy", "copy"]


def test_bytes_count(chain):
    x = chain.operands["x"]
    chain.memset(x[:12], 0, name="most") >> chain.node("load")
    assert [finding.value for finding in cheap(chain, disabled=["load"])] == ["x, bytes 48 to 64"]
    chain.memset(x[10:], 0, name="rest") >> chain.node("load")
    assert not judged(cheap(chain, disabled=["load"]))


def test_views_follow_params():
    g = gd.Graph("views")
    n = g.param("n", np.int32, default=4)
    x, y = g.device_array("x", 16, np.float32), g.device_array("y", 16, np.float32)
    g.memset(x[:n], 0, name="set") >> g.memcpy(y[:8], x[8:], name="copy")
    assert not judged(cheap(g, disabled=["set"]))
    found = cheap(g, disabled=["set"], values={"n": 12})
    assert [finding.value for finding in found] == ["x[8:], bytes 32 to 48"]


def chain_of(kernel, *args):
    """``clear`` writes x, the kernel is given x and y, ``copy`` reads x."""
    g = gd.Graph("kernels")
    x, y = g.device_array("x", 16, np.float32), g.device_array("y", 16, np.float32)
    with g.sequence():
        g.memset(x, 0, name="clear")
        g.kernel(kernel, grid=1, block=16, args=(x, y, *args), name="scale")
        g.memcpy(y, x, name="copy")
    return g


def test_kernels_read_and_write_what_their_code_does():
    g = chain_of(scale, 1.0, 16)
    found = [(each.node, each.field) for each in cheap(g, disabled=["clear"])]
    assert found == [("scale", "argument 'x'"), ("copy", "source")], "the kernel does not write x"
    assert [each.node for each in cheap(g, disabled=["scale"])] == [], "clear wrote x"
    assert {each.node for each in cheap(g, disabled=["scale", "clear"])} == {"copy"}


def test_kernels_that_nobody_reads_are_taken_to_read_and_write_what_they_are_passed():
    g = chain_of(gd.cuda_source('extern "C" __global__ void scale(float* x, float* y) {}', "scale"))
    assert [each.node for each in cheap(g, disabled=["clear"])] == ["scale"]
    assert {each.node for each in cheap(g, disabled=["scale", "clear"])} == {"copy"}


def test_a_cycle_is_left_to_its_own_rule(chain):
    chain.node("store") >> chain.node("load")
    assert "GD703" not in {code for code, _, _ in judged(cheap(chain, disabled=["load"]))}


class TestBodies:
    """A node before a child or conditional node is before all that is in it, and so on behind it."""

    @pytest.fixture
    def child(self):
        g = gd.Graph("child")
        x = g.device_array("x", 16, np.float32)
        y = g.device_array("y", 16, np.float32)
        g.memcpy(y, x, name="copy")
        return g

    def test_readers_in_a_body(self, child):
        g = gd.Graph("outer")
        x = g.device_array("x", 16, np.float32)
        g.memset(x, 0, name="set") >> g.child(child, {"x": x}, name="inner")
        assert judged(cheap(g, disabled=["set"])) == [("GD703", "inner/copy", "source")]

    def test_writers_in_a_body(self, child):
        g = gd.Graph("outer")
        y, z = g.device_array("y", 16, np.float32), g.device_array("z", 16, np.float32)
        inner = g.child(child, {"y": y}, name="inner")
        inner >> g.memcpy(z, y, name="after")
        g.memcpy(z, y, name="beside")
        assert [node for _, node, _ in judged(cheap(g, disabled=["inner/copy"]))] == ["after"]
        g.memset(y, 0, name="clear") >> inner
        assert not judged(cheap(g, disabled=["inner/copy"]))

    def test_bodies_in_bodies(self, child):
        middle = gd.Graph("middle")
        x, y = middle.device_array("x", 16, np.float32), middle.device_array("y", 16, np.float32)
        middle.child(child, {"x": x, "y": y}, name="deep")
        g = gd.Graph("outer")
        a, b, c = (g.device_array(name, 16, np.float32) for name in "abc")
        with g.sequence():
            g.memset(a, 0, name="set")
            g.child(middle, {"x": a, "y": b}, name="inner")
            g.memcpy(c, b, name="after")
        assert [finding.node for finding in cheap(g, disabled=["set"])] == ["inner/deep/copy"]
        assert [finding.node for finding in cheap(g, disabled=["inner/deep/copy"])] == ["after"]

    def test_bodies_of_a_condition(self):
        g = gd.Graph("outer")
        x, y = g.device_array("x", 16, np.float32), g.device_array("y", 16, np.float32)
        branch = g.if_(g.condition("taken", default=1), name="branch")
        branch.bodies[0].memcpy(y, x, name="yes")
        branch.otherwise.memset(y, 0, name="no")
        g.memset(x, 0, name="set") >> branch
        assert [finding.node for finding in cheap(g, disabled=["set"])] == ["branch/then/yes"]


SIZE = 6


@st.composite
def flows(draw):
    """A graph of memsets and copies over a few bytes, and which nodes are disabled."""
    count = draw(st.integers(1, 7))
    g = gd.Graph("drawn")
    buffers = [g.device_array(name, SIZE, np.uint8) for name in "ab"]
    for i in range(count):
        start, length = draw(st.integers(0, SIZE - 1)), draw(st.integers(1, SIZE))
        place = slice(start, min(start + length, SIZE))
        target = buffers[draw(st.integers(0, 1))]
        if draw(st.booleans()):
            g.memset(target[place], 1, name=f"n{i}")
        else:
            source = buffers[1 if target is buffers[0] else 0]
            g.memcpy(target[place], source[place], name=f"n{i}")
    edges = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=12))
    edges = sorted((a, b) for a, b in edges if a < b)
    disabled = draw(st.sets(st.integers(0, count - 1)))
    return g, edges, disabled


@settings(max_examples=150, deadline=None)
@given(flows())
def test_it_finds_what_a_search_byte_by_byte_finds(drawn):
    g, edges, disabled = drawn
    nodes = g.nodes
    found = {
        tuple(finding.nodes) for finding in check_disabled(nodes, [Inside(-1, range(len(nodes)), edges)], disabled, {})
    }
    dag = nx.DiGraph(edges)
    dag.add_nodes_from(range(len(nodes)))
    expected = set()
    for reader in set(range(len(nodes))) - disabled:
        before = nx.ancestors(dag, reader)
        for writer in before & disabled:
            others = set().union(*(written(nodes[each]) for each in before - disabled))
            if (written(nodes[writer]) & read(nodes[reader])) - others:
                expected.add((nodes[reader].name, nodes[writer].name))
    assert found == expected


def written(node):
    return {(node.destination.buffer.name, byte) for byte in bytes_of(node.destination)}


def read(node):
    return {(node.source.buffer.name, byte) for byte in bytes_of(node.source)} if hasattr(node, "source") else set()


def bytes_of(array):
    return range(array.offset, array.offset + array.nbytes)
