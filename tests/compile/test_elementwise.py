"""The kernels that are written for elementwise nodes."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

import graphdsl as gd
from graphdsl.compile.accesses import argument_accesses
from graphdsl.compile.fingerprint import fingerprint
from graphdsl.compile.numba import compile_kernel
from tests.check.findings import judged


@gd.elementwise
def scale(x, gain):
    return x * gain


@cuda.jit(device=True)
def cube(x):
    return x * x * x


@gd.elementwise
def cubed(x):
    return cube(x)


@gd.elementwise
def split(x):
    return x, x


def _kernel(function, out, args):
    g = gd.Graph()
    operands = {name: g.device_array(name, 8, dtype) for name, dtype in (*out.items(), *args.items())}
    outs = tuple(operands[name] for name in out)
    return g.elementwise(function, outs, tuple(operands[name] for name in args)), g


FLOATS = types.Array(types.float32, 1, "C")


def test_a_kernel_has_a_fingerprint_that_follows_from_the_function():
    def make(factor):
        @gd.elementwise
        def times(x):
            return x * factor

        node, _ = _kernel(times, {"y": np.float32}, {"x": np.float32})
        return fingerprint(node.kernel, (FLOATS, FLOATS), (9, 0))

    assert make(2.0) is not None
    assert make(2.0) == make(2.0) != make(3.0)


def test_an_image_is_made_without_a_gpu():
    node, _ = _kernel(cubed, {"y": np.float32}, {"x": np.float32})
    image = compile_kernel(node.kernel, (FLOATS, FLOATS))
    assert image.name == "cubed"
    assert image.cubin


@pytest.mark.parametrize(
    ("function", "out", "found"),
    [
        (scale, {"y": np.int32}, "float32, which an array of int32"),
        (scale, {"y": np.bool_}, "float32, which an array of bool"),
        (split, {"y": np.float32}, "UniTuple"),
        (scale, {"y": np.float32, "z": np.float32}, "unpack"),
    ],
)
def test_what_an_array_does_not_take_is_a_finding_of_the_node(function, out, found):
    parameters = {"x": np.float32} if function is split else {"x": np.float32, "gain": np.float32}
    _, g = _kernel(function, out, parameters)
    report = g.check()
    assert judged(report) == [("GD205", function.name, "kernel")]
    (finding,) = (each for each in report if each.code == "GD205")
    assert found in finding.message
    assert __file__ in str(finding.value)


@pytest.mark.parametrize(("out", "given"), [("u1", "i8"), ("i2", "u4"), ("f2", "f8"), ("c8", "f8"), ("f4", "b")])
def test_the_kind_decides_and_not_the_width(out, given):
    @gd.elementwise
    def same(x):
        return x

    _, g = _kernel(same, {"y": out}, {"x": given})
    assert g.check().ok


def test_parameters_named_as_what_the_kernel_uses_itself_do_not_hide_it():
    @gd.elementwise
    def odd(cuda, rounded, out, _i):
        return cuda + rounded + out + _i

    g = gd.Graph()
    y = g.device_array("y", 4, np.float32)
    g.elementwise(odd, y, (1.0, 2.0, 3.0, 4.0))
    with g.instantiate(gd.emulator()) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["y"].copy_to_host().tolist() == [10.0] * 4


def test_what_the_code_tells_is_what_the_recipe_says():
    g = gd.Graph()
    x, y, z = (g.device_array(name, (4, 8), np.float32) for name in "xyz")
    for node in (
        g.elementwise(scale, y, (x, 2.0)),
        g.elementwise(scale, y[:, ::2], (x[:, ::2], z[0, 0])),
        g.elementwise(scale, x, (x, x)),
    ):
        found = argument_accesses(node)
        assert found is not None
        for each in found:
            (place,) = each.path
            assert each.known
            assert (each.reads, each.writes) == (node.kernel.reads(place), node.kernel.writes(place))
