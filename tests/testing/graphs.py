"""Real graphs, each with every edge that it needs, and what their arrays hold at the start."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

import graphdsl as gd

Built = tuple[gd.Graph, dict[str, Any]]


@cuda.jit
def scaled(x, y, gain):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = gain * x[i]


@cuda.jit
def added(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def halved(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[2 * i] + x[2 * i + 1]


@cuda.jit
def smoothed(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = (x[max(i - 1, 0)] + np.float32(2) * x[i] + x[min(i + 1, x.size - 1)]) / np.float32(4)


@cuda.jit
def accumulate(total, x, left, more):
    i = cuda.grid(1)
    total[i] += x[i]
    if i == 0:
        left[0] -= 1
        gd.device.set_condition(more, left[0] > 0)


@cuda.jit
def passed_on(x, y):
    i = cuda.grid(1)
    gd.device.launch_dependents()
    gd.device.grid_dependency_wait()
    y[i] = x[i] + 1


def _launch(n: int) -> dict[str, int]:
    return {"grid": 1, "block": n}


def ecg() -> Built:
    """The example, on a short record."""
    path = Path(__file__).parents[2] / "docs" / "examples" / "ecg.py"
    spec = importlib.util.spec_from_file_location("ecg_example", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example  # its data classes look there
    spec.loader.exec_module(example)
    example.LENGTH, example.TAPS, example.REFRACTORY, example.BASELINE, example.BLOCK = 16, 3, 2, np.int32(3), 16
    beats = np.random.default_rng(1).integers(-50, 50, 16)
    return example.build(), {"raw": beats, "taps": [0.25, 0.5, 0.25]}


def diamond() -> Built:
    g = gd.Graph("diamond")
    raw, out = (g.host_array(name, 4, np.float32) for name in ("raw", "out"))
    x, y, z, total = (g.device_array(name, 4, np.float32) for name in ("x", "y", "z", "total"))
    load = g.memcpy(x, raw, name="load")
    left = g.kernel(scaled, **_launch(4), args=(x, y, 2.0), name="left")
    right = g.kernel(scaled, **_launch(4), args=(x, z, 3.0), name="right")
    join = g.kernel(added, **_launch(4), args=(y, z, total), name="join")
    load >> [left, right] >> join >> g.memcpy(out, total, name="store")
    return g, {"raw": [1, 2, 3, 4]}


def tree() -> Built:
    """A sum by halves: two branches of four elements, which meet."""
    g = gd.Graph("tree")
    raw, out = g.host_array("raw", 8, np.float32), g.host_array("out", 1, np.float32)
    x, four, two, one = (g.device_array(f"x{size}", size, np.float32) for size in (8, 4, 2, 1))
    ends = []
    for part in range(2):
        load = g.memcpy(x[4 * part : 4 * part + 4], raw[4 * part : 4 * part + 4], name=f"load{part}")
        here = (x[4 * part : 4 * part + 4], four[2 * part : 2 * part + 2], two[part : part + 1])
        first = g.kernel(halved, **_launch(2), args=here[:2], name=f"first{part}")
        second = g.kernel(halved, **_launch(1), args=here[1:], name=f"second{part}")
        load >> first >> second
        ends.append(second)
    ends >> g.kernel(halved, **_launch(1), args=(two, one), name="last") >> g.memcpy(out, one, name="store")
    return g, {"raw": np.arange(8)}


def stencil() -> Built:
    """Steps that take turns with two buffers; a copy of each state leaves beside the next step."""
    g = gd.Graph("stencil")
    raw, film = g.host_array("raw", 4, np.float32), g.host_array("film", (3, 4), np.float32)
    buffers = [g.device_array(name, 4, np.float32) for name in ("ping", "pong")]
    smooths, keeps = [g.memcpy(buffers[0], raw, name="load")], []
    for step in range(3):
        source, target = buffers[step % 2], buffers[1 - step % 2]
        smooth = g.kernel(smoothed, **_launch(4), args=(source, target), name=f"smooth{step}")
        keep = g.memcpy(film[step], target, name=f"keep{step}")
        # What the step before the last has left is kept before it is written over.
        [smooths[-1], *keeps[-2:-1]] >> smooth >> keep
        smooths.append(smooth)
        keeps.append(keep)
    return g, {"raw": [1, 5, -2, 8]}


def nested() -> Built:
    """A child between nodes, with nodes beside it that touch what it does."""
    inner = gd.Graph("inner")
    x, y, z = (inner.device_array(name, 4, np.float32) for name in "xyz")
    inner.kernel(scaled, **_launch(4), args=(x, y, 3.0), name="triple") >> inner.kernel(
        smoothed, **_launch(4), args=(y, z), name="smooth"
    )
    g = gd.Graph("nested")
    a, b, c, d = (g.device_array(name, 4, np.float32) for name in "abcd")
    raw, out = g.host_array("raw", 4, np.float32), g.host_array("out", 4, np.float32)
    load = g.memcpy(a, raw, name="load")
    child = g.child(inner, {"x": a, "y": b, "z": c}, name="child")
    clear, copy = g.memset(d, 0, name="clear"), g.memcpy(d, c, name="copy")
    again = g.memset(a, 0, name="again")
    load >> child >> copy >> g.memcpy(out, d, name="store")
    clear >> copy
    child >> again
    return g, {"raw": [1, 2, 3, 4]}


def loop() -> Built:
    """A while whose body adds to a sum until its turns are over; the setting up comes before, the reading after."""
    g = gd.Graph("loop")
    raw, out = g.host_array("raw", 2, np.float32), g.host_array("out", 2, np.float32)
    total, x, y = (g.device_array(name, 2, np.float32) for name in ("total", "x", "y"))
    left = g.device_array("left", 1, np.int32)
    more = g.condition("more", default=1)
    start = [g.memset(total, 0, name="zero"), g.memset(left, 2, name="turns"), g.memcpy(x, raw, name="load")]
    again = g.while_(more, name="again")
    with again as body:
        double = body.kernel(added, **_launch(2), args=(x, x, y), name="double")
        add = body.kernel(accumulate, **_launch(2), args=(total, y, left, more), name="add")
        double >> add
    start >> again >> g.memcpy(out, total, name="store")
    return g, {"raw": [1, 2]}


def host_work() -> Built:
    """Memsets, copies and host nodes on shared buffers."""
    g = gd.Graph("host_work")
    raw, out = g.host_array("raw", 4, np.int32), g.host_array("out", 4, np.int32)
    x, y = (g.device_array(name, 4, np.int32) for name in "xy")

    def count(values):
        values[:] = np.arange(values.size) + 1

    def negate(values):
        values *= -1

    fill = g.host(count, args=(raw,), name="fill")
    zero, load = g.memset(y, 0, name="zero"), g.memcpy(x, raw, name="load")
    part = g.memcpy(y[:2], x[2:], name="part")
    store = g.memcpy(out, y, name="store")
    flip = g.host(negate, args=(out,), name="flip")
    clear = g.memset(x, 7, name="clear")
    fill >> load >> part >> store >> flip
    zero >> part >> clear
    return g, {}


def overlapping() -> Built:
    """Kernels that may start before those in front of them have ended."""
    g = gd.Graph("overlapping")
    raw, out = g.host_array("raw", 4, np.int32), g.host_array("out", 4, np.int32)
    arrays = [g.device_array(name, 4, np.int32) for name in "abcd"]
    steps = [
        g.kernel(passed_on, **_launch(4), args=pair, name=f"step{number}")
        for number, pair in enumerate(itertools.pairwise(arrays))
    ]
    g.memcpy(arrays[0], raw, name="load") >> steps[0]
    for before, after in itertools.pairwise(steps):
        g.edge(before, after, programmatic=True)
    steps[-1] >> g.memcpy(out, arrays[-1], name="store")
    return g, {"raw": [1, 2, 3, 4]}


GRAPHS: list[Callable[[], Built]] = [ecg, diamond, tree, stencil, nested, loop, host_work, overlapping]
