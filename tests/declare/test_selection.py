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


def test_what_matches_nothing_is_named_with_close_names(nodes):
    with pytest.raises(gd.UpdateError, match=r"no node of this name.*load"):
        selected(nodes, ["laod"], error=gd.UpdateError)
    with pytest.raises(gd.DeclarationError, match=r"no scope of this name.*ab"):
        selected(nodes, scope="b")
