from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.declare.definition import Definition
from graphdsl.plan import plan
from graphdsl.plan.memory import ALIGNMENT, place


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 5000), max_size=8))
def test_buffers_are_aligned_and_never_overlap(sizes):
    definition = Definition()
    buffers = [definition.device_array(name, size, np.uint8) for name, size in sizes.items()]
    placed = place(buffers)
    spans = sorted((placed.offsets[b.name], placed.offsets[b.name] + max(b.allocation_nbytes, 1)) for b in buffers)
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(end <= placed.nbytes for _, end in spans)


def test_only_device_memory_of_the_exec_is_placed():
    definition = Definition()
    definition.device_array("x", 4, np.float32)
    definition.host_array("h", 4, np.float32)
    definition.external("w", np.zeros(4, np.float32))
    definition.param("n", np.int32, default=1)
    assert set(plan(definition).memory.offsets) == {"x"}


def test_a_plan_is_a_snapshot():
    definition = Definition()
    first = definition.empty(name="first")
    made = plan(definition)
    definition.empty(name="second", after=first)
    definition.device_array("x", 4, np.float32)
    assert [node.name for node in made.nodes] == ["first"]
    assert made.edges.shape == (0, 2)
    assert made.buffers == {}
