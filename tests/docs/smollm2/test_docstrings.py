"""The examples in the docstrings of the example."""

import doctest

import pytest
from smollm2 import generate, load, memory, scheduler, weights


@pytest.mark.parametrize("module", [generate, load, memory, scheduler, weights], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(module).failed == 0
