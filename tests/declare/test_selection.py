"""Nodes by name, pattern and scope."""

from __future__ import annotations

import pytest

import graphdsl as gd
from graphdsl.declare.selection import selected

NAMES = ["load", "a/scale", "a/b/scale", "a/b/store", "ab/scale", "x[1]"]


@pytest.fixture
def nodes():
    g = gd.Graph("selection")
    return [g.empty(name=name) for name in NAMES]


@pytest.mark.parametrize(
    ("patterns", "scope", "chosen"),
    [
        (["load"], None, ["load"]),
        (["*scale"], None, ["a/scale", "a/b/scale", "ab/scale"]),
        (["a/*"], None, ["a/scale", "a/b/scale", "a/b/store"]),
        (["x[1]"], None, ["x[1]"]),
        (["store", "?oad"], "a", None),
        (["*store", "*store", "load"], None, ["load", "a/b/store"]),
        ([], "a", ["a/scale", "a/b/scale", "a/b/store"]),
        ([], "a/b", ["a/b/scale", "a/b/store"]),
        (["*scale"], "a/b", ["a/b/scale"]),
    ],
)
def test_what_is_chosen(nodes, patterns, scope, chosen):
    if chosen is None:
        with pytest.raises(gd.DeclarationError):
            selected(nodes, patterns, scope=scope)
    else:
        assert [NAMES[i] for i in selected(nodes, patterns, scope=scope)] == chosen


def test_tags():
    g = gd.Graph("tags")
    with g.tagged("slow"), g.scope("a"):
        g.empty(name="one")
        with g.tagged("debug", "slow"):
            g.empty(name="two")
    g.empty(name="three")
    nodes = g.nodes
    assert [sorted(node.tags) for node in nodes] == [["slow"], ["debug", "slow"], []]
    assert selected(nodes, tag="slow") == [0, 1]
    assert selected(nodes, ["*o*"], scope="a", tag="debug") == [1]
    with pytest.raises(gd.DeclarationError, match=r"no tag of this name.*slow"):
        selected(nodes, tag="slwo")
    with pytest.raises(gd.DeclarationError, match="a tag is a string"):
        g.tagged("")
    assert g.to_networkx().nodes["a/two"]["tags"] == {"debug", "slow"}


def test_nodes_in_bodies_have_the_tags_of_what_holds_them():
    inner = gd.Graph("inner")
    with inner.tagged("own"):
        inner.memset(inner.device_array("x", 4, "f4"), 0, name="set")
    g = gd.Graph("outer")
    with g.tagged("debug"):
        child = g.child(inner)
        with g.if_(g.condition("taken", default=1), name="branch") as body:
            body.empty(name="nothing")
    assert child.body.nodes[0].tags == {"own", "debug"}
    assert g.node("branch/then/nothing").tags == {"debug"}
    assert inner.nodes[0].tags == {"own"}


def test_what_matches_nothing_is_named_with_close_names(nodes):
    with pytest.raises(gd.UpdateError, match=r"no node of this name.*load"):
        selected(nodes, ["laod"], error=gd.UpdateError)
    with pytest.raises(gd.DeclarationError, match=r"no scope of this name.*ab"):
        selected(nodes, scope="b")
