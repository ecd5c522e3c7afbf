from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st

from graphdsl.check import check_launch, launch_fits
from graphdsl.compile.placement import Placement
from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.limits import limits_of
from tests.check.findings import LAUNCHED_ANYHOW

LIMITS = limits_of("sm_90")


def near(*values: int) -> st.SearchStrategy[int]:
    return st.sampled_from([value + step for value in values for step in (-1, 0, 1)])


@given(
    grid=st.tuples(near(1, 2**31 - 1), near(1, 65535), near(1, 65535)),
    block=st.tuples(near(1, 32, 1024), near(1, 16), near(1, 64)),
    shared_bytes=near(0, 48 * 1024, 232448),
    max_threads=st.sampled_from([128, 1024]),
    static=st.sampled_from([0, 4096]),
    own_block=st.sampled_from([None, (32, 1, 1)]),
    least=st.sampled_from([0, 1]),
)
@example((1, 1, 1), (32, 1, 1), 0, 1024, 0, None, 0)
@example((1, 1, 1), (32, 1, 1), 1, 1024, 0, (32, 1, 1), 1)
def test_the_short_answer_is_that_of_the_rules(grid, block, shared_bytes, max_threads, static, own_block, least):
    image = SimpleNamespace(
        name="kernel",
        max_threads=max_threads,
        shared_bytes=static,
        registers=32,
        placement=Placement(),
        block=own_block,
        least_shared_bytes=least,
    )
    found = check_launch("node", grid, block, shared_bytes, LIMITS, image)
    assert launch_fits((*grid, *block, shared_bytes), LIMITS, image) == (not found)


clusters = st.none() | st.tuples(st.sampled_from([0, 1, 2, 3, 8, 16]), st.sampled_from([1, 1, 2]), st.just(1))


@given(
    grid=st.tuples(near(1, 2, 8, 16, 132, 264, 1056), st.sampled_from([1, 1, 2, 4]), st.just(1)),
    threads=st.sampled_from([1, 32, 256, 1024]),
    shared_bytes=st.sampled_from([0, 1000, 100_000, 200_000]),
    registers=st.sampled_from([16, 64, 128]),
    attributes=st.none()
    | st.builds(
        LaunchAttributes,
        cooperative=st.booleans(),
        cluster=clusters,
        preferred_cluster=clusters,
        cluster_policy=st.sampled_from([None, "spread"]),
    ),
    placement=st.just(Placement())
    | st.builds(
        Placement,
        cluster=clusters,
        needs_cluster=st.booleans(),
        max_cluster=st.sampled_from([None, 2, 16]),
        barriers=st.sampled_from([1, 5]),
        syncs_grid=st.booleans(),
    ),
    limits=st.sampled_from([LIMITS, replace(LIMITS, max_cluster=0), replace(LIMITS, cooperative=False)]),
)
def test_the_same_of_clusters_and_cooperative_launches(
    grid, threads, shared_bytes, registers, attributes, placement, limits
):
    image = SimpleNamespace(
        name="kernel", max_threads=1024, shared_bytes=0, registers=registers, placement=placement, **LAUNCHED_ANYHOW
    )
    dims = (*grid, threads, 1, 1, shared_bytes)
    found = check_launch("node", grid, (threads, 1, 1), shared_bytes, limits, image, attributes=attributes)
    assert launch_fits(dims, limits, image, attributes) == (not found)
