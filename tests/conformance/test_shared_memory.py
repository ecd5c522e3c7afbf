"""Planned arrays on a device: results are those of arrays that share nothing, launch after launch."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.device import grid_dependency_wait, launch_dependents, set_condition

N = 512


@cuda.jit
def mix(a, b, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = 3 * a[i] + b[i] + 1


@cuda.jit
def mix_early(a, b, y):
    launch_dependents()
    grid_dependency_wait()
    i = cuda.grid(1)
    if i < y.size:
        y[i] = 3 * a[i] + b[i] + 1


@cuda.jit
def count_down(left, more):
    left[0] -= 1
    set_condition(more, left[0])


def layers(seed: int, depth: int = 8, width: int = 3, programmatic: bool = False) -> gd.Graph:
    """Layers of kernels, each of which reads two results of the layer before."""
    g, drawn = gd.Graph("layers"), random.Random(seed)
    raw = g.host_array("raw", N, np.int32)
    x = g.device_array("x", N, np.int32)
    before = [(x, g.memcpy(x, raw, name="load"))]
    kernel = mix_early if programmatic else mix
    for layer in range(depth):
        made = []
        for number in range(width):
            sources = [drawn.choice(before) for _ in range(2)]
            result = g.device_array(f"r{layer}_{number}", N, np.int32)
            node = g.kernel(
                kernel, grid=2, block=256, args=(*(array for array, _ in sources), result), name=f"k{layer}_{number}"
            )
            for source in dict.fromkeys(source for _, source in sources):
                g.edge(source, node, programmatic=programmatic and layer > 0)
            made.append((result, node))
        before = made
    for array, node in before:
        node >> g.memcpy(g.host_array(f"out_{array.name}", N, np.int32), array, name=f"store_{array.name}")
    return g


def results(graph: gd.Graph, device, share_memory: bool) -> list[list[int]]:
    found = []
    with graph.instantiate(device, share_memory=share_memory) as exe:
        for launch in range(3):
            exe["raw"][:] = np.arange(N) + launch
            exe.launch()
            exe.synchronize()
            found += [exe[name].tolist() for name in graph.operands if name.startswith("out_")]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_results_are_those_of_arrays_that_share_nothing(device, seed):
    graph = layers(seed)
    memory = graph.plan().memory[None]
    assert memory.peak_nbytes < memory.sum_nbytes
    assert results(graph, device, True) == results(graph, device, False)


@pytest.mark.parametrize("seed", range(2))
def test_kernels_that_overlap(device, seed):
    if device.limits.compute_capability < (9, 0):
        pytest.skip("programmatic edges need compute capability 9.0")
    graph = layers(seed, programmatic=True)
    assert results(graph, device, True) == results(graph, device, False)


def test_what_a_loop_uses(device):
    g = gd.Graph("loop")
    raw, out = g.host_array("raw", N, np.int32), g.host_array("out_y", N, np.int32)
    x, y, other, left = (g.device_array(name, size, np.int32) for name, size in zip("xyzl", (N, N, N, 1)))
    times = g.host_array("times", 1, np.int32)
    more = g.condition("more", default=1)
    with g.sequence():
        g.memcpy(x, raw, name="load")
        g.memcpy(left, times, name="times")
        g.memset(y, 0, name="clear")
        loop = g.while_(more, name="loop")
        g.memcpy(out, y, name="store")
    with loop as body, body.sequence():
        body.kernel(mix, grid=2, block=256, args=(x, y, other), name="mix")
        body.memcpy(y, other, name="keep")
        body.kernel(count_down, grid=1, block=1, args=(left, more), name="count")
    assert set(g.plan().planned) >= {"x", "y", "z"}
    with g.instantiate(device) as exe:
        for number in (1, 4):
            exe["raw"][:], exe["times"][:] = np.arange(N), number
            exe.launch()
            exe.synchronize()
            assert exe["out_y"].tolist() == [number * (3 * i + 1) for i in range(N)]


def test_updates_and_whole_updates_keep_the_places(device):
    graph = layers(1)
    with graph.instantiate(device) as exe:
        addresses = exe.addresses
        exe.update_from(layers(1))
        assert exe.addresses == addresses
        with pytest.raises(gd.UpdateError, match="plan of memory"):
            exe.update_from(kept(layers(1)))
        done = exe.update_from(kept(layers(1)), on_mismatch="reinstantiate")
        assert done.reinstantiated
        exe["raw"][:] = 1
        exe.launch()
        assert exe["x"].copy_to_host().tolist() == [1] * N


def kept(graph: gd.Graph) -> gd.Graph:
    """The graph, with an array that stays."""
    graph.operands["x"].lifetime = "persistent"
    return graph
