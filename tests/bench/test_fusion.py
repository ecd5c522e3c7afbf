"""What is measured of fusion: two graphs that compute the same, one of them one kernel."""

import pytest

import graphdsl as gd
from graphdsl.bench.fusion import chain, require_right


def test_both_graphs_compute_what_they_say():
    declared = chain(4, 300)
    fused, changes = gd.passes.fuse_elementwise(declared)
    assert (len(declared), len(fused)) == (4, 1)
    assert [name for (name,) in changes.of("operand dropped")] == ["t1", "t2", "t3"]
    for graph in (declared, fused):
        with graph.instantiate(gd.emulator()) as graph_exec:
            require_right(graph_exec, 4)
            with pytest.raises(AssertionError):
                require_right(graph_exec, 3)
