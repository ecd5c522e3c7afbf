"""Errors: one family, each with node, field, value, rule, remedy and place as attributes."""

from __future__ import annotations

import copy
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import graphdsl as gd
from graphdsl import errors
from graphdsl.drivers.results import InstantiateError
from graphdsl.errors import CheckError, DriverError, GraphdslError, MemoryFault, describe, plain

FAMILY = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, Exception) and value is not GraphdslError
]


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({}, "the rule."),
        ({"node": "scale"}, "node 'scale': the rule."),
        ({"field": "grid"}, "grid: the rule."),
        ({"value": 7}, "7: the rule."),
        ({"field": "grid", "value": 0}, "grid = 0: the rule."),
        ({"node": "scale", "value": 7}, "node 'scale', 7: the rule."),
        ({"node": "scale", "field": "grid", "value": (0, 1, 1)}, "node 'scale', grid = (0, 1, 1): the rule."),
        ({"remedy": "Do it."}, "the rule. Do it."),
        ({"location": ("demo.py", 3)}, "the rule. (declared at demo.py:3)"),
        ({"field": "x", "remedy": "Do it.", "location": ("demo.py", 3)}, "x: the rule. Do it. (declared at demo.py:3)"),
    ],
)
def test_a_message_has_what_is_known_in_the_order_of_reading(details, text):
    assert describe("the rule", **details) == text
    assert str(GraphdslError("the rule", **details)) == text


@pytest.mark.parametrize("rule", ["It ends.", "Does it?", "It does!"])
def test_a_sentence_that_ends_gets_no_second_full_stop(rule):
    assert describe(rule) == rule


def test_details_are_attributes():
    error = GraphdslError("the rule", node="a", field="f", value=0, remedy="Do it.", location=("demo.py", 3))
    assert (error.rule, error.node, error.field, error.value) == ("the rule", "a", "f", 0)
    assert (error.remedy, error.location) == ("Do it.", ("demo.py", 3))


@pytest.mark.parametrize("error", FAMILY, ids=lambda error: error.__name__)
def test_all_are_of_one_family(error):
    assert issubclass(error, GraphdslError)
    assert error.__doc__


def test_a_check_error_carries_its_report():
    report = object()
    error = CheckError("the rule", report=report, node="a")
    assert error.report is report
    assert error.node == "a"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (None, "node 'a': cuGraphLaunch returned CUDA_ERROR_INVALID_VALUE (1)."),
        ("no such node", "node 'a': cuGraphLaunch returned CUDA_ERROR_INVALID_VALUE (1): no such node."),
    ],
)
def test_a_driver_error_names_the_call_and_its_code(rule, said):
    error = DriverError("cuGraphLaunch", 1, "CUDA_ERROR_INVALID_VALUE", rule, node="a")
    assert str(error) == said
    assert (error.call, error.code, error.code_name) == ("cuGraphLaunch", 1, "CUDA_ERROR_INVALID_VALUE")


def test_a_memory_fault_is_a_driver_error():
    assert issubclass(MemoryFault, DriverError)


# Pickles and copies


DETAILS = {"node": "a", "field": "f", "value": (1, np.float32(2)), "remedy": "Do it.", "location": ("demo.py", 3)}


def made(error):
    """An error of a class, with all that it can have."""
    if error is InstantiateError:
        return error(1, "CUDA_GRAPH_INSTANTIATE_ERROR", 0x10, **DETAILS)
    if issubclass(error, DriverError):
        return error("cuGraphLaunch", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "the rule", **DETAILS)
    if issubclass(error, CheckError):
        return error("the rule", report=["a finding"], **DETAILS)
    return error("the rule", **DETAILS)


def restored(error):
    """The ways in which Python makes another object of an error."""
    yield copy.copy(error)
    yield copy.deepcopy(error)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(error, protocol))


@pytest.mark.parametrize("error", [GraphdslError, *FAMILY, InstantiateError], ids=lambda error: error.__name__)
def test_all_survive_pickling_and_copying(error):
    original = made(error)
    original.thread = (1, 0, 0)  # as the emulator adds what it knows
    for found in restored(original):
        assert type(found) is error
        assert (str(found), found.args, vars(found)) == (str(original), original.args, vars(original))


def test_a_subclass_of_the_users_survives_too():
    for found in restored(OfTheUser(3, level=4)):
        assert (str(found), found.level, found.rule) == ("rule 3.", 4, "rule 3")


class OfTheUser(GraphdslError):
    def __init__(self, number, *, level):
        super().__init__(f"rule {number}")
        self.level = level


def wrong_graph():
    graph = gd.Graph("wrong")
    whole = graph.external("whole", bytearray(16))
    graph.memcpy(graph.device_array("x", 8, np.float32), whole, name="load")
    return graph


def test_an_error_that_holds_an_operand_takes_its_text_along():
    with pytest.raises(CheckError) as caught:
        wrong_graph().check("sm_90").raise_for_errors()
    for found in restored(caught.value):
        assert str(found) == str(caught.value)
        assert [str(finding) for finding in found.report] == [str(finding) for finding in caught.value.report]
        assert found.report.graph == "wrong"
        if found.report is not caught.value.report:  # a shallow copy shares it
            assert all(isinstance(finding.value, str) for finding in found.report)
            assert any(finding.value.startswith("whole") for finding in found.report)


def raise_in_worker():
    wrong_graph().check("sm_90").raise_for_errors()


def test_a_worker_process_raises_what_went_wrong_in_it():
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        pytest.raises(CheckError, match="node 'load'") as caught,
    ):
        pool.submit(raise_in_worker).result()
    assert caught.value.report.errors[0].node == "load"


@pytest.mark.parametrize("value", [None, True, 3, 1.5, 2j, "x", b"x", (1, "a"), [1, (2,)], {"n": np.int32(3)}])
def test_data_stays_as_it_is(value):
    assert plain(value) == value
    assert type(plain(value)) is type(value)


def test_all_else_becomes_text():
    assert plain({"x": [np.dtype("f4"), 3]}) == {"x": ["float32", 3]}


def test_values_that_would_fill_pages_are_cut_short():
    assert describe("rule", field="grid", value=(10**5000, -(10**5000), 3)) == (
        "grid = (an integer of 16610 bits, a negative integer of 16610 bits, 3): rule."
    )
    assert describe("rule", field="x", value=(2**200,)) == f"x = ({2**200},): rule."
    assert len(describe("rule", value="long" * 10_000)) < 1100
