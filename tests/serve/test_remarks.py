"""What times say of a graph: too little for a launch, or nothing gained by it."""

from __future__ import annotations

import pytest

from graphdsl.plan.costs import Costs
from graphdsl.serve.remarks import overhead, remarks

MICRO = 1e-6


def said(**given) -> list[str]:
    return list(remarks(**({"nodes": 100, "launch": 2 * MICRO, "gpu": 100 * MICRO, "padding": 0.0} | given)))


def test_a_graph_of_many_short_nodes_is_fine():
    assert said() == []


@pytest.mark.parametrize(("launch", "remarked"), [(14.9, False), (17.0, False), (18.0, True)])
def test_launching_may_take_15_percent_of_a_run(launch, remarked):
    found = said(nodes=31, launch=launch * MICRO, gpu=100 * MICRO)
    assert any("little for one launch" in each for each in found) is remarked


def test_graphs_that_launch_slowly_are_told_of_lanes_and_of_memsets():
    (found,) = said(nodes=512, launch=400 * MICRO, gpu=150 * MICRO)
    assert "a chain of 512 kernels takes about" in found
    assert "lanes='auto'" in found
    assert "memsets, about 0.9 µs each" in found
    assert "launching takes 73% of a run" in found


def test_long_nodes_hide_launches_one_by_one():
    assert said(nodes=10, gpu=320 * MICRO) == []  # 10 of 32.5 µs take longer
    (found,) = said(nodes=10, gpu=330 * MICRO)
    assert "no longer pays" in found
    assert "325 µs of the processor" in found
    assert "saves 323 µs of the processor" in found


def test_padding_costs_the_graph_and_not_the_stream():
    (found,) = said(nodes=10, gpu=400 * MICRO)
    assert "done as soon" in found
    (found,) = said(nodes=10, gpu=400 * MICRO, padding=0.1)
    assert "done 40.0 µs sooner" in found  # 360 of the GPU, where launches take 325
    (found,) = said(nodes=10, gpu=400 * MICRO, padding=0.9)
    assert "done 75.0 µs sooner" in found  # of the GPU only 40: the launches count
    assert "Smaller buckets" in found
    assert said(nodes=10, gpu=300 * MICRO, padding=0.9) == []  # 325 µs of launches one by one are longer still


def test_where_launches_are_cheap_graphs_pay_less():
    cheap = Costs(stream_launch=2.0)
    assert list(remarks(100, 2 * MICRO, 150 * MICRO, 0.0, cheap)) == []
    assert len(list(remarks(100, 2 * MICRO, 250 * MICRO, 0.0, cheap))) == 1


def test_nothing_is_said_before_the_gpu_was_measured():
    assert said(gpu=0.0) == said(nodes=0) == []
    assert overhead(1.0, 0.0) == 0.0
