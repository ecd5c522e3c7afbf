"""Nodes as they are once declared."""

from __future__ import annotations

import numpy as np

from graphdsl.declare.definition import Definition
from graphdsl.declare.node import NodeList, flatten


def test_a_replaced_node_leaves_the_node_as_it_is():
    g = Definition()
    x = g.device_array("x", 4, np.float32)
    node = g.memset(x, 0, name="clear")
    other = node.replaced(value=1)
    assert type(other) is type(node)
    assert (other.name, other.definition, other.location) == (node.name, g, node.location)
    assert (node.value, other.value) == (0, 1)
    assert other.destination is x
    assert g.node("clear") is node


def test_chains_give_what_stands_on_the_right():
    g = Definition()
    a, b, c = g.empty(), g.empty(), g.empty()
    assert (a >> b) is b
    side = a >> [b, c]
    assert isinstance(side, NodeList)
    assert side == [b, c]
    assert ([a] >> side) is side


def test_flatten():
    g = Definition()
    a, b, c = g.empty(), g.empty(), g.empty()
    assert flatten(a) == [a]
    assert flatten([]) == []
    assert flatten(iter([a, (b, [c])])) == [a, b, c]
    given = [a, b]
    assert flatten(given) is not given
