"""Clusters and cooperative grids: a wrong graph gives code, node and field, and the nearest right one gives none."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.check import check, check_launch
from graphdsl.compile.placement import Placement
from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.limits import limits_of
from tests.check.conftest import scale
from tests.check.findings import LAUNCHED_ANYHOW, cheap, in_any_order, judged, only

SM_90 = limits_of("sm_90")


def node(demo, *, grid=8, block=256, name="run", **attributes):
    return demo.g.kernel(
        scale, grid=grid, block=block, args=(demo.x, demo.y, demo.gain, demo.n), name=name, **attributes
    )


@pytest.mark.parametrize(
    ("attributes", "target", "expected"),
    [
        ({"cluster": 8}, "sm_90", []),
        ({"cluster": (4, 2, 2), "grid": (8, 2, 2)}, "sm_90", []),
        ({"cluster": 32, "grid": 32}, "sm_90", [("GD215", "run", "cluster")]),
        ({"cluster": 0}, "sm_90", [("GD215", "run", "cluster")]),
        ({"cluster": (2, -1)}, "sm_90", [("GD215", "run", "cluster")]),
        ({"cluster": 2}, "sm_89", [("GD215", "run", "cluster")]),
        ({"cluster": 1}, "sm_80", [("GD215", "run", "cluster")]),
        ({"cluster": 2}, "sm_120", []),
        ({"cluster": 3}, "sm_90", [("GD216", "run", "cluster")]),
        ({"cluster": (2, 1, 2)}, "sm_90", [("GD216", "run", "cluster")]),
        ({"cluster": 2, "preferred_cluster": 4}, "sm_100", []),
        ({"cluster": 2, "preferred_cluster": 4}, "sm_90", [("GD217", "run", "preferred_cluster")]),
        ({"cluster": 2, "preferred_cluster": (4, 2), "grid": (8, 2)}, "sm_100", []),
        ({"preferred_cluster": 4}, "sm_100", [("GD217", "run", "preferred_cluster")]),
        ({"cluster": 4, "preferred_cluster": 6, "grid": 12}, "sm_100", [("GD217", "run", "preferred_cluster")]),
        (
            {"cluster": 2, "preferred_cluster": (2, 1, 2), "grid": (2, 1, 2)},
            "sm_100",
            [("GD217", "run", "preferred_cluster")],
        ),
        ({"cluster": 2, "preferred_cluster": 6}, "sm_100", [("GD216", "run", "preferred_cluster")]),
        ({"cluster": 2, "preferred_cluster": 32, "grid": 32}, "sm_100", [("GD215", "run", "preferred_cluster")]),
        ({"cluster": 2, "cluster_policy": "spread"}, "sm_90", []),
        ({"cluster_policy": "spread"}, "sm_90", [("GD221", "run", "cluster_policy")]),
    ],
)
def test_clusters(demo, attributes, target, expected):
    node(demo, **attributes)
    assert judged(cheap(demo.g, target=target)) == expected


def test_a_cluster_may_not_divide_what_a_param_makes_of_the_grid(demo):
    node(demo, grid=gd.cdiv(demo.n, 256), cluster=4)
    assert judged(cheap(demo.g)) == []
    found = only(cheap(demo.g, values={"n": 1025}))
    assert (found.code, found.value) == ("GD216", (4, 1, 1))
    assert "the grid is (5, 1, 1)" in found.rule
    assert found.remedy.startswith("It is (cdiv(n, 256), 1, 1), and n = 1025.")


class TestCompiledClusters:
    def found(self, placement, attributes=None, grid=(8, 1, 1)):
        image = SimpleNamespace(
            name="kernel", max_threads=1024, shared_bytes=0, registers=32, placement=placement, **LAUNCHED_ANYHOW
        )
        found = check_launch("run", grid, (32, 1, 1), 0, SM_90, image, attributes=attributes)
        return [(each.code, each.field) for each in found]

    def test_the_cluster_of_the_kernel_is_the_launch_s(self):
        assert self.found(Placement((4, 1, 1))) == []
        assert self.found(Placement((4, 1, 1)), LaunchAttributes(cluster=(4, 1, 1))) == []
        assert self.found(Placement((4, 1, 1)), LaunchAttributes(cluster_policy="spread")) == []
        assert self.found(Placement((4, 1, 1)), grid=(6, 1, 1)) == [("GD216", "cluster")]
        assert self.found(Placement((4, 1, 1)), LaunchAttributes(cluster=(2, 1, 1))) == [("GD218", "cluster")]

    def test_a_kernel_that_needs_clusters_is_given_some(self):
        assert self.found(Placement(needs_cluster=True)) == [("GD218", "cluster")]
        assert self.found(Placement(needs_cluster=True), LaunchAttributes(priority=1)) == [("GD218", "cluster")]
        assert self.found(Placement(needs_cluster=True), LaunchAttributes(cluster=(2, 1, 1))) == []
        assert self.found(Placement((2, 1, 1), needs_cluster=True)) == []

    def test_launch_bounds(self):
        both = LaunchAttributes(cluster=(2, 1, 1), preferred_cluster=(4, 1, 1))
        assert self.found(Placement(max_cluster=4), both) == []
        assert self.found(Placement(max_cluster=2), both) == [("GD218", "preferred_cluster")]
        assert self.found(Placement(max_cluster=1), both) == [("GD218", "cluster"), ("GD218", "preferred_cluster")]


class TestCooperativeGrids:
    @pytest.mark.parametrize(
        ("grid", "block", "options", "expected"),
        [
            (132 * 8, 256, {}, []),
            (132 * 8 + 1, 256, {}, [("GD219", "run", "grid")]),
            ((66, 4, 4), 256, {}, []),
            ((67, 4, 4), 256, {}, [("GD219", "run", "grid")]),
            (132 * 2, 1024, {}, []),
            (132 * 2 + 1, 1024, {}, [("GD219", "run", "grid")]),
            (132 * 32, 32, {}, []),
            (132 * 32 + 1, 32, {}, [("GD219", "run", "grid")]),
            (132 * 2, 256, {"shared_bytes": 100_000}, []),
            (132 * 2 + 1, 256, {"shared_bytes": 100_000}, [("GD219", "run", "grid")]),
            (132 * 2, 1024, {"cluster": 8}, []),
            (132 * 2 + 8, 1024, {"cluster": 8}, [("GD219", "run", "grid")]),
            (100_000, 2048, {}, [("GD212", "run", "block")]),  # nothing is said of a block that cannot be
            (100_000, 256, {"shared_bytes": -1}, [("GD214", "run", "shared_bytes")]),
        ],
    )
    def test_blocks_that_run_at_once(self, demo, grid, block, options, expected):
        kwargs = dict(options)
        shared = kwargs.pop("shared_bytes", 0)
        args = (demo.x, demo.y, demo.gain, demo.n)
        demo.g.kernel(
            scale, grid=grid, block=block, args=args, name="run", shared_bytes=shared, cooperative=True, **kwargs
        )
        assert judged(cheap(demo.g)) == expected

    def test_the_device_at_hand_counts(self, demo):
        node(demo, grid=132, cooperative=True)
        small = dataclasses.replace(SM_90, multiprocessors=16)
        found = only(check(demo.g, target=small))
        assert (found.code, found.node, found.field) == ("GD219", "run", "grid")
        assert "16 multiprocessors of sm_90 hold 128 such blocks, not 132" in found.rule
        found = only(check(demo.g, target=dataclasses.replace(SM_90, cooperative=False)))
        assert (found.code, found.node, found.field) == ("GD219", "run", "cooperative")

    def test_registers_count(self, demo):
        image = SimpleNamespace(
            name="kernel", max_threads=1024, shared_bytes=0, registers=128, placement=Placement(), **LAUNCHED_ANYHOW
        )
        attributes = LaunchAttributes(cooperative=True)
        for blocks, codes in ((132 * 2, []), (132 * 2 + 1, ["GD219"])):
            found = check_launch("run", (blocks, 1, 1), (256, 1, 1), 0, SM_90, image, attributes=attributes)
            assert [each.code for each in found] == codes


@cuda.jit
def twice(x, y):
    i = cuda.grid(1)
    y[i] = x[i]
    cuda.cg.this_grid().sync()
    x[i] = y[x.size - 1 - i]


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_wait_for_the_grid_needs_a_cooperative_launch(demo, cooperative):
    demo.g.kernel(twice, grid=4, block=256, args=(demo.x, demo.y), name="run", cooperative=cooperative)
    assert judged(check(demo.g)) == ([] if cooperative else [("GD220", "run", "cooperative")])


class TestUpdates:
    """A grid that follows a param stays in the bounds that the attributes set."""

    def exe(self, target="sm_90", **attributes):
        g = gd.Graph("demo")
        n = g.param("n", np.int32, default=1024)
        x, y = (g.device_array(name, 1024, np.float32) for name in "xy")
        args = (x, y, np.float32(1), n)
        g.kernel(scale_gpu, grid=gd.cdiv(n, 128), block=128, args=args, name="run", **attributes)
        return g.instantiate(gd.emulator(target=target))

    @pytest.mark.parametrize(
        ("attributes", "good", "bad", "field"),
        [
            ({"cluster": 4}, 512, 513, "cluster"),
            ({"target": "sm_100", "cluster": 2, "preferred_cluster": 4}, 512, 256, "preferred_cluster"),
            ({"cooperative": True}, 132 * 16 * 128, 132 * 16 * 128 + 1, "grid"),
        ],
    )
    def test_updates_are_held_to_the_rules(self, attributes, good, bad, field):
        exe = self.exe(**attributes)
        exe.update(n=good)
        for update in (lambda: exe.update(n=bad), lambda: exe.node("run").update(grid=gd_cdiv(bad))):
            with pytest.raises(gd.UpdateError) as caught:
                update()
            assert (caught.value.node, caught.value.field) == ("run", field)
        assert exe["n"] == good
        exe.update(n=128 * 4)

    def test_nodes_of_one_launch_and_other_attributes_are_told_apart(self):
        g = gd.Graph("demo")
        n = g.param("n", np.int32, default=1024)
        x, y = (g.device_array(name, 1024, np.float32) for name in "xy")
        for name, attributes in (("a", {}), ("b", {"cluster": 2}), ("c", {"cluster": 4})):
            args = (x, y, np.float32(1), n)
            g.kernel(scale_gpu, grid=gd.cdiv(n, 128), block=128, args=args, name=name, **attributes)
        exe = in_any_order(g).instantiate(gd.emulator())
        with pytest.raises(gd.UpdateError) as caught:
            exe.update(n=256)
        assert caught.value.node == "c"


@cuda.jit
def scale_gpu(x, y, gain, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = gain * x[i]


def gd_cdiv(n):
    return -(-n // 128)
