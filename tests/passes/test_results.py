"""Every pass gives a graph with the same results, in whatever order its edges leave."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphdsl as gd
from tests.passes.programs import programs, results

PASSES = [gd.passes.transitive_reduction, gd.passes.fuse_elementwise]


OUTPUTS = st.lists(st.sampled_from(["a_out", "b_out", "c_out"]), min_size=1, unique=True)


@given(programs(), st.permutations(PASSES), OUTPUTS, st.integers(0, 99))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_results_are_equal_bit_for_bit_in_random_orders(g, passes, outputs, seed):
    before = copy.deepcopy(g)
    drop = partial(gd.passes.eliminate_dead, outputs=outputs)
    made, changes = gd.passes.apply(g, [*passes, drop][:: seed % 2 * 2 - 1])
    assert g.to_dot() == before.to_dot()
    assert list(g.operands) == list(before.operands)
    expected = results(g, gd.emulator(), gain=0.3)
    for device in (gd.emulator(order="random", seed=seed), gd.emulator(order="reverse")):
        found = results(made, device, gain=0.3)
        assert set(found) == set(outputs)
        for name in outputs:
            values = expected[name]
            assert np.array_equal(found[name].view(np.uint32), values.view(np.uint32)), (name, str(changes))
