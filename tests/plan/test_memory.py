from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.declare.definition import Definition
from graphdsl.plan import plan
from graphdsl.plan.memory import ALIGNMENT, place

PLACES = st.tuples(st.integers(0, 5000), st.sampled_from([None, 0, 1]))


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), PLACES, max_size=8))
def test_buffers_are_aligned_and_never_overlap(places):
    definition = Definition()
    buffers = []
    for name, (size, device) in places.items():
        with nullcontext() if device is None else definition.on(device):
            buffers.append(definition.device_array(name, size, np.uint8))
    plans = place(buffers)
    assert sorted(name for placed in plans.values() for name in placed.offsets) == sorted(places)
    for device, placed in plans.items():
        sizes = {buffer.name: max(buffer.allocation_nbytes, 1) for buffer in buffers if buffer.device == device}
        spans = sorted((placed.offsets[name], placed.offsets[name] + size) for name, size in sizes.items())
        assert all(start % ALIGNMENT == 0 for start, _ in spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert all(end <= placed.nbytes for _, end in spans)


def test_only_device_memory_of_the_exec_is_placed():
    definition = Definition()
    definition.device_array("x", 4, np.float32)
    definition.host_array("h", 4, np.float32)
    definition.external("w", np.zeros(4, np.float32))
    definition.param("n", np.int32, default=1)
    assert set(plan(definition).memory[None].offsets) == {"x"}


def test_a_plan_is_a_snapshot():
    definition = Definition()
    first = definition.empty(name="first")
    made = plan(definition)
    definition.empty(name="second", after=first)
    definition.device_array("x", 4, np.float32)
    assert [node.name for node in made.nodes] == ["first"]
    assert made.edges.shape == (0, 2)
    assert made.buffers == {}
