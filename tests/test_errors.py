"""Errors: one family, each with node, field, value, rule, remedy and place as attributes."""

from __future__ import annotations

import inspect

import pytest

from graphdsl import errors
from graphdsl.errors import CheckError, DriverError, GraphdslError, MemoryFault, describe

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
