"""Rules GD226 to GD229, and the rules about kernels of any kind, on kernels that are not Numba's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.compile.sources import machine_code
from tests.check.findings import cheap, judged, only

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, float gain, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gain * x[i];
}"""
BLOCKED = "__global__ void __block_size__((32, 2, 1)) blocked(float* x) { *x = 1; }"


@pytest.fixture
def scale():
    return gd.cuda_source(SCALE, "scale")


@pytest.fixture
def cubin(scale):
    return gd.cubin(machine_code(scale, (9, 0)).build.cubin, "scale")


def test_right_ones(demo, scale, cubin):
    for kernel in (scale, cubin):
        demo.g.kernel(kernel, grid=4, block=256, args=(demo.x, demo.y, demo.gain, demo.n))
        demo.g.kernel(kernel, grid=4, block=256, args=(demo.x[8:], demo.raw, 2, 3))
    assert judged(demo.g.check()) == judged(cheap(demo.g)) == []


@pytest.mark.parametrize(
    ("spoil", "field", "value"),
    [
        (lambda demo: (demo.table[:, 0], demo.y, 1, 2), "argument 'x'", "table[:, 0]"),
        (lambda demo: (3, demo.y, 1, 2), "argument 'x'", "3"),
        (lambda demo: (np.zeros(4, np.float32), demo.y, 1, 2), "argument 'x'", None),
        (lambda demo: (demo.g.device_array("other", 4, np.int32), demo.y, 1, 2), "argument 'x'", None),
        (lambda demo: (demo.x, demo.g.external("w", _readonly()), 1, 2), "argument 'y'", None),
        (lambda demo: (demo.x, demo.y, demo.n, 2), "argument 'gain'", "n"),
        (lambda demo: (demo.x, demo.y, demo.x, 2), "argument 'gain'", None),
        (lambda demo: (demo.x, demo.y, 1, 2.5), "argument 'n'", "2.5"),
        (lambda demo: (demo.x, demo.y, 1, 2**31), "argument 'n'", "2147483648"),
        (lambda demo: (demo.x, demo.y, 1, None), "argument 'n'", "None"),
    ],
)
def test_arguments_that_the_signature_does_not_take(demo, scale, spoil, field, value):
    node = demo.g.kernel(scale, grid=4, block=256, args=spoil(demo))
    for report in (demo.g.check(), cheap(demo.g)):
        (found,) = [found for found in report if found.code == "GD226"]
        assert (found.node, found.field, found.location) == ("scale", field, node.location)
        assert found.rule.startswith("parameter ")
        assert found.remedy
        if value is not None:
            assert str(found.value) == value


def _readonly():
    data = np.zeros(1024, np.float32)
    data.flags.writeable = False
    return data


def test_read_only_memory_goes_where_const_says_so(demo, scale):
    interface = {"shape": (1024,), "typestr": "<f4", "data": (2**40, True), "version": 3}
    weights = demo.g.external("w", SimpleNamespace(__cuda_array_interface__=interface))
    demo.g.kernel(scale, grid=4, block=256, args=(weights, demo.y, 1, 2))
    assert judged(demo.g.check()) == []


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda demo: (demo.x, demo.y, demo.gain), "args"),
        (lambda demo: (demo.x, demo.y, demo.gain, demo.n, 1), "args"),
        (lambda demo: (demo.x, demo.y, np.float64(1), demo.n), "args[2]"),
        (lambda demo: (demo.x, demo.y, demo.x, demo.n), "args[2]"),
        (lambda demo: (demo.gain, demo.y, 1.0, demo.n), "args[0]"),
    ],
)
def test_counts_and_sizes_of_machine_code(demo, cubin, spoil, field):
    demo.g.kernel(cubin, grid=4, block=256, args=spoil(demo), name="run")
    assert judged(demo.g.check()) == [("GD226", "run", field)]
    if field == "args":
        assert judged(cheap(demo.g)) == []  # only the machine code tells


def test_a_count_that_is_known_is_checked_without_compiling(demo, scale):
    demo.g.kernel(scale, grid=4, block=256, args=(demo.x, demo.y))
    assert judged(cheap(demo.g)) == [("GD201", "scale", "args")]
    assert only(cheap(demo.g)).value == "missing gain, n"


def test_signatures(demo):
    wrong = gd.cuda_source(SCALE, "scale", signature="const float* x, float* y, double gain, int n")
    for _ in range(2):
        demo.g.kernel(wrong, grid=4, block=256, args=(demo.x, demo.y, 1.0, demo.n))
    found = only(demo.g.check())
    assert (found.code, found.node, found.field, found.value) == ("GD227", "scale", "signature", "double gain")
    assert found.nodes == ("scale", "scale_1")
    assert judged(cheap(demo.g)) == []


def test_what_does_not_compile_is_found_once(demo):
    broken = gd.cuda_source(SCALE.replace("gain * x", "gian * x"), "scale")
    demo.g.kernel(broken, grid=4, block=256, args=(demo.x, demo.y, 1.0, demo.n))
    demo.g.kernel(broken, grid=4, block=256, args=(demo.x, demo.y, demo.gain, 3))
    found = only(demo.g.check())
    assert (found.code, found.field, found.nodes) == ("GD205", "kernel", ("scale", "scale_1"))
    assert "gian" in found.rule
    assert "scale.cu:4" in found.value


def test_machine_code_for_another_device(demo, cubin):
    demo.g.kernel(cubin, grid=4, block=256, args=(demo.x, demo.y, 1.0, demo.n))
    assert judged(demo.g.check(target="sm_80")) == [("GD205", "scale", "kernel")]


def test_blocks_that_kernels_were_compiled_for(demo):
    blocked = gd.cuda_source(BLOCKED, "blocked")
    demo.g.kernel(blocked, grid=1, block=(32, 2), args=demo.x, name="right")
    demo.g.kernel(blocked, grid=1, block=(16, 4), args=demo.x, name="wrong")
    demo.g.kernel(blocked, grid=1, block=demo.n // 32, args=demo.x, name="follows")
    found = [found for found in demo.g.check() if found.code == "GD228"]
    assert [(each.node, each.field) for each in found] == [("wrong", "block"), ("follows", "block")]
    assert found[1].remedy.startswith("It is ((n // 32), 1, 1), and n = 1024.")
    assert judged(cheap(demo.g)) == []  # only the machine code tells


def test_updates_are_held_to_the_types_and_the_block(demo, scale):
    g, stand_in = demo.g, lambda x, y, gain, n: None
    kernel = gd.cuda_source(SCALE, "scale", emulate=stand_in)
    g.kernel(kernel, grid=4, block=256, args=(demo.x, demo.y, demo.gain, demo.n), name="run")
    g.kernel(gd.cuda_source(BLOCKED, "blocked", emulate=lambda x: None), grid=1, block=(32, 2), args=demo.x)
    with g.instantiate(gd.emulator()) as exe:
        run = exe.node("run")
        run.update(args={"y": demo.x, "gain": 3.0})
        run.update(args=(demo.y, None, 2, demo.n))
        for args, match in (
            ((demo.x, demo.y, 1.0), "takes 4 arguments"),
            ((demo.x, demo.y, 1.0, demo.gain), "compiled for"),
            ((demo.x, demo.y, 1.0, 2**31), "compiled for"),
            ((demo.table[:, 0], demo.y, 1.0, 2), "compiled for"),
        ):
            with pytest.raises(gd.UpdateError, match=match):
                run.update(args=args)
        with pytest.raises(gd.UpdateError, match="compiled for a block"):
            exe.node("blocked").update(block=(2, 32))


VECTORS = 'extern "C" __global__ void fill(float4* y, int n) { y[n].x = 1; }'


def test_addresses_of_vectors(demo):
    fill = gd.cuda_source(VECTORS, "fill")
    n = demo.g.param("start", np.int32, default=4)
    for index, array in enumerate((demo.y, demo.y[4:], demo.y[n:], demo.y[2:], demo.y[n + 1 :])):
        demo.g.kernel(fill, grid=1, block=1, args=(array, 0), name=f"fill{index}")
    for report in (demo.g.check(), cheap(demo.g)):
        assert judged(report) == [("GD229", "fill3", "argument 'y'"), ("GD229", "fill4", "argument 'y'")]
    assert "at byte 20" in [found.rule for found in demo.g.check() if found.code == "GD229"][1]


def test_multiples_that_triton_compiled_for(demo):
    from graphdsl.declare.sources import SourceKernel

    declared = gd.cuda_source(VECTORS, "fill", signature="float* y, int n").types
    types = (declared[0]._replace(divisor=16), declared[1]._replace(divisor=16))
    fill = SourceKernel("cuda", VECTORS.encode(), "fill", types=types, emulate=lambda y, n: None)
    demo.g.kernel(fill, grid=1, block=1, args=(demo.y, 7), name="number")
    demo.g.kernel(fill, grid=1, block=1, args=(demo.y, demo.n + 8), name="follows")
    demo.g.kernel(fill, grid=1, block=1, args=(demo.y[1:], demo.n), name="view")
    assert judged(demo.g.check()) == [
        ("GD229", "number", "argument 'n'"),
        ("GD229", "follows", "argument 'n'"),
        ("GD229", "view", "argument 'y'"),
    ]
    g = gd.Graph("updates")
    y, n = g.device_array("y", 64, np.float32), g.param("n", np.int32, default=64)
    g.kernel(fill, grid=1, block=1, args=(y, n), name="param")
    g.kernel(fill, grid=1, block=1, args=(y, 16), name="number")
    with g.instantiate(gd.emulator()) as exe:
        exe.update(n=48)
        exe.node("number").update(args={"n": 32})
        with pytest.raises(gd.UpdateError, match="multiple of 16, and this is 50") as refused:
            exe.update(n=50)
        assert refused.value.node == "param"
        assert exe["n"] == 48
        with pytest.raises(gd.UpdateError, match="multiple of 16, and this is 17"):
            exe.node("number").update(args={"n": 17})
        with pytest.raises(gd.UpdateError, match="at byte"):
            exe.node("number").update(args={"y": y[1:]})
