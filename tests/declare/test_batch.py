from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.errors import DeclarationError


@pytest.fixture
def g() -> gd.Graph:
    return gd.Graph("demo")


@pytest.fixture
def word(g):
    return g.device_array("words", 4, np.uint32)[0]


def test_it_needs_a_yes(g, word):
    with pytest.raises(TypeError, match="may_deadlock"):
        g.batch_mem_ops(gd.write_value(word, 1))
    for answer in (False, None, 1, "yes"):
        with pytest.raises(DeclarationError, match="for ever") as caught:
            g.batch_mem_ops(gd.write_value(word, 1), may_deadlock=answer, name="meet")
        assert (caught.value.node, caught.value.field) == ("meet", "may_deadlock")
    assert not g.dag


@pytest.mark.parametrize("operations", [[], None, 3, "write", [1], [None]])
def test_it_needs_operations(g, operations):
    with pytest.raises(DeclarationError, match="a list of operations, at least one") as caught:
        g.batch_mem_ops(operations, may_deadlock=True, name="meet")
    assert (caught.value.node, caught.value.field) == ("meet", "operations")


@pytest.mark.parametrize("value", [None, 1.5, True, "1"])
def test_values_are_integers(word, value):
    for make in (gd.write_value, gd.wait_value):
        with pytest.raises(DeclarationError, match="is an integer"):
            make(word, value)


def test_words_are_arrays_and_comparisons_have_names(word):
    with pytest.raises(DeclarationError, match="array of the graph"):
        gd.write_value(3, 1)
    with pytest.raises(DeclarationError, match="geq, eq, and, nor"):
        gd.wait_value(word, 1, "less")


def test_operands_and_fields_are_those_of_the_operations(g, word):
    n = g.param("n", np.int32)
    node = g.batch_mem_ops([gd.write_value(word, n), gd.memory_barrier()], may_deadlock=True)
    assert node.operands() == (word, n)
    assert dict(node.fields()) == {"operations[0].array": word, "operations[0].value": n}
    assert str(node.operations[1]) == "memory_barrier()"
