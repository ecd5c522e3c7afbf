"""Rules GD241 to GD243: functions of captured nodes, their stand-ins, and the memory that they work on."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.check.findings import cheap, judged, only


@pytest.fixture
def graph() -> gd.Graph:
    made = gd.Graph("demo")
    made.device_array("x", 4, np.float32)
    return made


def test_a_function_that_takes_no_stream(graph):
    node = graph.capture(lambda x: None, graph.operands["x"], name="work", emulate=lambda x: None)
    found = only(cheap(graph))
    assert (found.code, found.severity, found.node, found.field) == ("GD241", "error", "work", "function")
    assert "too many positional arguments" in found.message
    assert found.value == "<lambda>(x)"
    assert found.location == node.location


@pytest.mark.parametrize(
    "function", [lambda stream, x: None, lambda *args: None, lambda stream, x, y=1: None, np.add, print]
)
def test_functions_that_can_be_called(graph, function):
    graph.capture(function, graph.operands["x"], name="work")
    assert judged(cheap(graph)) == []


def test_a_stand_in_that_takes_a_stream(graph):
    graph.capture(lambda stream, x: None, graph.operands["x"], name="work", emulate=lambda stream, x: None)
    found = only(cheap(graph))
    assert (found.code, found.severity, found.node, found.field) == ("GD242", "error", "work", "emulate")
    assert "missing a required argument: 'x'" in found.message


def test_work_that_is_given_no_array(graph):
    graph.capture(lambda stream, n: None, 3, name="work")
    found = only(cheap(graph))
    assert (found.code, found.severity, found.node, found.field) == ("GD243", "advice", "work", "args")


def test_views_and_tuples_of_arrays_are_arrays(graph):
    graph.capture(lambda stream, pair: None, ((graph.operands["x"][:2], 1),), name="work")
    assert judged(cheap(graph)) == []


def test_operands_of_other_graphs_and_views_outside_are_found_as_those_of_other_nodes(graph):
    n = graph.param("n", np.int32, default=9)
    graph.capture(lambda stream, x: None, graph.operands["x"][:n], name="work")
    assert [found[:2] for found in judged(cheap(graph))] == [("GD301", "work")]


def test_captured_work_in_a_body_is_left_to_the_driver(graph):
    with graph.if_(graph.condition("taken", default=1)) as body:
        body.capture(lambda stream, x: None, graph.operands["x"], name="work")
    assert judged(cheap(graph)) == []
