from __future__ import annotations

from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st

from graphdsl.check import check_launch, launch_fits
from graphdsl.declare.limits import limits_of

LIMITS = limits_of("sm_90")


def near(*values: int) -> st.SearchStrategy[int]:
    return st.sampled_from([value + step for value in values for step in (-1, 0, 1)])


@given(
    grid=st.tuples(near(1, 2**31 - 1), near(1, 65535), near(1, 65535)),
    block=st.tuples(near(1, 32, 1024), near(1, 16), near(1, 64)),
    shared_bytes=near(0, 48 * 1024, 232448),
    max_threads=st.sampled_from([128, 1024]),
    static=st.sampled_from([0, 4096]),
)
@example((1, 1, 1), (32, 1, 1), 0, 1024, 0)
def test_the_short_answer_is_that_of_the_rules(grid, block, shared_bytes, max_threads, static):
    image = SimpleNamespace(name="kernel", max_threads=max_threads, shared_bytes=static, registers=32)
    found = check_launch("node", grid, block, shared_bytes, LIMITS, image)
    assert launch_fits((*grid, *block, shared_bytes), LIMITS, image) == (not found)
