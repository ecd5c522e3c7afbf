"""Kernels that are not Python functions, as they are declared."""

from __future__ import annotations

import copy
import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.declare.kernel import as_kernel
from graphdsl.declare.sources import SourceKernel

SCALE = 'extern "C" __global__ void scale(const float* x, float* y, float gain, int n) {}'
PTX = ".version 8.0 .target sm_80 .address_size 64 .visible .entry fill(.param .u64 x, .param .f32 value) { ret; }"


def refused(make, *args, **options) -> gd.DeclarationError:
    with pytest.raises(gd.DeclarationError) as found:
        make(*args, **options)
    return found.value


def test_parameters_come_from_the_text_the_signature_or_the_python_function():
    scale = gd.cuda_source(SCALE, "scale")
    assert (repr(scale), scale.reads, scale.function) == ("scale(x, y, gain, n)", {"x"}, None)
    declared = gd.cuda_source(SCALE, "scale", signature="float* a, const float* b, float, int")
    assert (repr(declared), declared.reads) == ("scale(a, b, 2, 3)", {"b"})
    unknown = gd.ptx(PTX)
    assert (repr(unknown), unknown.counted, unknown.parameters) == ("kernel", False, ())
    named = gd.ptx(PTX, "fill", emulate=lambda x, value: None)
    assert (repr(named), named.counted) == ("fill(x, value)", True)
    mixed = gd.ptx(PTX, "fill", signature="float* y, float", emulate=lambda x, value: None)
    assert mixed.parameters == ("y", "value")


def test_python_functions_that_stand_in():
    @cuda.jit
    def scale(x, y, gain, n):
        pass

    made = gd.cuda_source(SCALE, "scale", emulate=scale)
    assert made.function is scale.py_func
    wrong = refused(gd.cuda_source, SCALE, "scale", emulate=lambda x, y: None)
    assert (wrong.field, wrong.rule) == (
        "emulate",
        "it has the parameters of kernel scale, which takes 4: const float*, float*, float, int",
    )
    assert refused(gd.cuda_source, SCALE, "scale", emulate=3).field == "emulate"
    assert refused(gd.cuda_source, SCALE, "scale", emulate=made).field == "emulate"


def test_files(tmp_path):
    path = tmp_path / "scale.cu"
    path.write_text(SCALE)
    for given in (path, str(path)):
        assert gd.cuda_source(given, "scale").path == str(path)
    assert gd.cuda_source(SCALE, "scale").path is None
    ptx = tmp_path / "fill.ptx"
    ptx.write_text(PTX)
    assert gd.ptx(ptx).code == gd.ptx(str(ptx)).code == gd.ptx(PTX.encode() + b"\0").code == PTX.encode()
    cubin = tmp_path / "fill.cubin"
    cubin.write_bytes(b"\x7fELF...")
    assert gd.cubin(cubin).code == gd.cubin(str(cubin)).code == gd.cubin(b"\x7fELF...").code
    for make, name in ((gd.cuda_source, "missing.cu"), (gd.ptx, "missing.ptx"), (gd.cubin, 3)):
        assert refused(make, name, "kernel").field == "code"
    assert "cuobjdump" in str(refused(gd.cubin, b"\x50\xed\x55\xba", "kernel"))


def test_names_and_options():
    for name in (None, "", 3, "a\nb"):
        assert refused(gd.cuda_source, SCALE, name).field == "name"
    assert gd.cuda_source(SCALE, "scale", options={"std": "c++20"}).options == {"std": "c++20"}
    from cuda.core import ProgramOptions

    given = ProgramOptions(std="c++20", arch="sm_80", name="other")
    assert gd.cuda_source(SCALE, "scale", options=given).options == {"std": "c++20"}
    for wrong in (["-std=c++20"], {3: 4}, {"arch": "sm_80"}):
        assert refused(gd.cuda_source, SCALE, "scale", options=wrong).field == "options"


def test_nodes_of_them():
    g = gd.Graph()
    x, n = g.device_array("x", 8, np.float32), g.param("n", np.int32)
    scale = gd.cuda_source(SCALE, "scale")
    node = g.kernel(scale, grid=1, block=8, args={"n": n, "gain": 2.0, "y": x, "x": x})
    assert (node.name, node.args, node.kernel) == ("scale", (x, x, 2.0, n), scale)
    assert copy.deepcopy(g).nodes[0].kernel is scale
    signed = g.kernel(scale, grid=1, block=8, args=(x, x, 1, 2), signature="void*, void*, float, int")
    again = g.kernel(scale, grid=1, block=8, args=(x, x, 1, 2), signature="void*, void*, float, int")
    assert signed.kernel is again.kernel is not scale
    assert signed.signature is None
    assert signed.kernel.reads == set()
    assert g.kernel(gd.cuda_source("__global__ void k(int) {}", "a::k<int>"), grid=1, block=1, args=3).name == "k"
    by_name = refused(g.kernel, gd.ptx(PTX), grid=1, block=1, args={"x": x})
    assert "signature=" in by_name.remedy
    assert refused(g.kernel, scale, grid=1, args=(x, x, 1, 2)).field == "block"
    assert refused(g.kernel, lambda x: None, grid=1, args=x).field == "block"


def test_structures_are_kept_as_they_are():
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_int))

    g = gd.Graph()
    kernel = gd.cuda_source("__global__ void k(Pair p, Pair q) {}", "k")
    pair, record = Pair(1, 2), np.zeros((), "i4,i4")[()]
    node = g.kernel(kernel, grid=1, block=1, args=(pair, record))
    pair.a = 3
    record["f0"] = 3
    assert node.args[0] == bytes(Pair(1, 2))
    assert node.args[1]["f0"] == 0
    single = gd.cuda_source("__global__ void one(Pair p) {}", "one")
    assert g.kernel(single, grid=1, block=1, args=record).args == (record,)


# Objects of others


class CompiledKernel:
    """Has what Triton's has, and nothing else."""

    __module__ = "triton.compiler.compiler"

    def __init__(self, signature: dict, cubin: bytes = b"\x7fELF", **metadata) -> None:
        values = {
            "name": "add_kernel", "shared": 512, "num_warps": 4, "num_ctas": 1, "cluster_dims": (1, 1, 1),
            "launch_cooperative_grid": False, "global_scratch_size": 0, "profile_scratch_size": 0,
            "target": SimpleNamespace(backend="cuda", arch=90, warp_size=32),
        }  # fmt: skip
        self.metadata = SimpleNamespace(**{**values, **metadata})
        self.asm = {"ptx": "", "cubin": cubin}
        attrs = {(0,): [["tt.divisibility", 16]], (2,): [["tt.divisibility", 16], ["tt.other", 3]]}
        self.src = SimpleNamespace(signature=signature, attrs=attrs)


ADD = {"x": "*fp32", "y": "*kfp32", "n": "i32", "flag": "i1", "b": "bf16", "BLOCK": "constexpr"}


def test_kernels_of_triton():
    compiled = CompiledKernel(ADD)
    g = gd.Graph()
    x = g.device_array("x", 8, np.float32)
    node = g.kernel(compiled, grid=3, args=(x, x, 1, True, np.uint16(0)))
    kernel = node.kernel
    assert isinstance(kernel, SourceKernel)
    assert repr(kernel) == "add_kernel(x, y, n, flag, b)"
    assert kernel.reads == {"y"}
    assert [each.type.text for each in kernel.types] == ["*fp32", "*kfp32", "i32", "i1", "bf16"]
    assert (node.block, node.shared_bytes, node.attributes) == ((128, 1, 1), 512, None)
    assert [kernel.divisor(index) for index in range(6)] == [16, 1, 16, 1, 1, 1]
    assert g.kernel(compiled, grid=3, args=(x, x, 1, True, np.uint16(0))).kernel is kernel
    assert as_kernel(compiled) is kernel
    assert gd.triton(compiled, signature="float*, int n").parameters == ("0", "n")


def test_cooperative_kernels_of_triton():
    g = gd.Graph()
    x = g.device_array("x", 8, np.float32)
    cooperative = CompiledKernel({"x": "*fp32"}, launch_cooperative_grid=True)
    assert g.kernel(cooperative, grid=3, args=x, priority=-1).attributes.cooperative
    assert not g.kernel(cooperative, grid=3, args=x, cooperative=False, priority=-1).attributes.cooperative


def test_scratch_memory_of_triton_is_an_argument():
    assert gd.triton(CompiledKernel({"x": "*fp32"})).hidden == 2
    made = gd.triton(CompiledKernel({"x": "*fp32"}, global_scratch_size=64))
    assert (made.parameters, made.hidden) == (("x", "global_scratch"), 1)
    made = gd.triton(CompiledKernel({"x": "*fp32"}, profile_scratch_size=64))
    assert (made.parameters, made.hidden) == (("x", "global_scratch", "profile_scratch"), 0)


def test_what_of_triton_is_refused():
    class JITFunction:
        __module__ = "triton.runtime.jit"

    g = gd.Graph()
    error = refused(g.kernel, JITFunction(), grid=1, name="add")
    assert (error.node, error.field) == ("add", "kernel")
    assert "warmup" in error.remedy
    for compiled in (
        CompiledKernel(ADD, num_ctas=2),
        CompiledKernel(ADD, cluster_dims=(2, 1, 1)),
        CompiledKernel({"t": "tensordesc<fp32[128,64]>"}),
        CompiledKernel({"t": ("i32", "i32")}),
        CompiledKernel(None),
    ):
        assert refused(g.kernel, compiled, grid=1).field == "kernel"
    other = CompiledKernel(ADD)
    other.asm = {"hsaco": b""}
    assert "for CUDA" in str(refused(gd.triton, other))


def test_objects_of_cuda_core():
    from cuda.core import Kernel, ObjectCode

    g = gd.Graph()
    loaded = Kernel.from_handle(0x1234)
    kernel = g.kernel(loaded, grid=1, block=8, args=3).kernel
    assert (kernel.form, kernel.origin, kernel.counted) == ("loaded", loaded, False)
    assert g.kernel(loaded, grid=1, block=8, args=3).kernel is kernel
    assert g.kernel(loaded, grid=1, block=8, args=3, signature="int n").kernel.parameters == ("n",)
    error = refused(g.kernel, ObjectCode.from_cubin(b"\x7fELF"), grid=1, block=8)
    assert "get_kernel" in error.remedy
