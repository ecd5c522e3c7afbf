"""Kernels that are not Python: CUDA C++, PTX, machine code and Triton's, each with what stands in on the emulator."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.compile.sources import machine_code

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, float gain, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gain * x[i];
}"""

SCALE_PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 gain, .param .u32 n) {
    .reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.f32 %f1, [gain]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $end;
    cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2;
    mul.wide.s32 %rd5, %r5, 4;
    add.s64 %rd6, %rd3, %rd5; add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f2, [%rd6];
    mul.f32 %f3, %f1, %f2;
    st.global.f32 [%rd7], %f3;
$end:
    ret;
}"""


def scale(x, y, gain, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = gain * x[i]


def of_cubin(device):
    code = machine_code(gd.cuda_source(SCALE, "scale"), device.limits.compute_capability)
    return gd.cubin(code.build.cubin, "scale", emulate=scale)


KERNELS = {
    "source": lambda device: gd.cuda_source(SCALE, "scale", emulate=scale),
    "options": lambda device: gd.cuda_source(SCALE, "scale", emulate=scale, options={"use_fast_math": True}),
    "template": lambda device: gd.cuda_source(
        SCALE.replace('extern "C"', "template <typename T>").replace("float", "T"), "scale<float>", emulate=scale
    ),
    "ptx": lambda device: gd.ptx(SCALE_PTX, "scale", emulate=scale),
    "cubin": of_cubin,
}


@pytest.mark.parametrize("form", KERNELS)
def test_each_form_runs_and_follows_its_params(device, form):
    g = gd.Graph(form)
    n = g.param("n", np.int32, default=1000)
    gain = g.param("gain", np.float32, default=2.0)
    raw, out = g.host_array("raw", 1024, np.float32), g.host_array("out", 1024, np.float32)
    x, y = g.device_array("x", 1024, np.float32), g.device_array("y", 1024, np.float32)
    with g.sequence():
        g.memcpy(x, raw)
        g.memset(y, 0)
        g.kernel(KERNELS[form](device), grid=gd.cdiv(n, 128), block=128, args=(x, y, gain, n), name="run")
        g.memcpy(out, y)
    data = np.arange(1024, dtype=np.float32)
    with g.instantiate(device) as exe:
        for values in ({}, {"gain": -1.5}, {"n": 100, "gain": 3.0}):
            exe["raw"][:] = data
            exe.update(values)
            exe.launch()
            exe.synchronize()
            np.testing.assert_array_equal(exe["out"], np.where(np.arange(1024) < exe["n"], exe["gain"] * data, 0))
        exe.node("run").update(args=(x[8:], y[4:], 1.0, 16), grid=1)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"][4:20], data[8:24])
        assert not exe["out"][:4].any()


STRUCTURES = """
struct Pair { char a; double b; };
struct alignas(64) Wide { float values[16]; int last; };
extern "C" __global__ void mix(float* out, char c, const __grid_constant__ Wide w, Pair p, float2 z, bool f, short s) {
    out[0] = c; out[1] = w.values[3]; out[2] = w.last; out[3] = p.a; out[4] = p.b;
    out[5] = z.x; out[6] = z.y; out[7] = f; out[8] = s;
}"""


def mix(out, c, w, p, z, f, s):
    out[0], out[1], out[2], out[3], out[4] = c, w["values"][3], w["last"], p["a"], p["b"]
    out[5], out[6], out[7], out[8] = z.real, z.imag, f, s


def test_structures_and_small_numbers_by_value(device):
    wide = np.zeros((), np.dtype([("values", "f4", 16), ("last", "i4"), ("rest", "V60")]))
    wide["values"][3], wide["last"] = 3.5, -7
    pair = np.array((9, 2.25), np.dtype([("a", "i1"), ("b", "f8")], align=True))[()]
    g = gd.Graph("structures")
    z, s = g.param("z", np.complex64, default=1 - 2j), g.param("s", np.int16, default=-300)
    out = g.host_array("out", 9, np.float32)
    kernel = gd.cuda_source(STRUCTURES, "mix", emulate=mix)
    g.kernel(kernel, grid=1, block=1, args=(out, 5, wide[()], pair, z, True, s))
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [5, 3.5, -7, 9, 2.25, 1, -2, 1, -300]
        exe.update(z=0.5j, s=12)
        exe.node("mix").update(args={"c": -5, "f": False})
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [-5, 3.5, -7, 9, 2.25, 0, 0.5, 0, 12]


TWO = """
__device__ int counter;
extern "C" __global__ void start(int* out) { counter = 40; out[0] = 1; }
extern "C" __global__ void finish(int* out) { out[1] = counter + 2; }
"""


def test_kernels_of_one_source_are_one_library(device):
    g = gd.Graph("library")
    out = g.host_array("out", 2, np.int32)

    def start(out):
        out[0] = 1

    def finish(out):
        out[1] = 42  # the emulator has no variables that kernels share

    with g.sequence():
        g.memset(out, 0)
        g.kernel(gd.cuda_source(TWO, "start", emulate=start), grid=1, block=1, args=out)
        g.kernel(gd.cuda_source(TWO, "finish", emulate=finish), grid=1, block=1, args=out)
    with g.instantiate(device) as exe:
        assert [call.function for call in exe.calls].count("cuLibraryLoadData") == 1
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [1, 42]


def test_much_dynamic_shared_memory(device):
    code = """extern "C" __global__ void sum(const float* x, float* out) {
        extern __shared__ float s[];
        s[threadIdx.x] = x[threadIdx.x];
        s[20000 + threadIdx.x] = 1;
        __syncthreads();
        if (threadIdx.x == 0) for (int i = 0; i < blockDim.x; i++) *out += s[i] * s[20000 + i];
    }"""

    def total(x, out):
        s = cuda.shared.array(0, "float32")
        i = cuda.threadIdx.x
        s[i] = x[i]
        s[20000 + i] = 1
        cuda.syncthreads()
        if i == 0:
            for k in range(cuda.blockDim.x):
                out[0] += s[k] * s[20000 + k]

    g = gd.Graph("shared")
    x, out = g.host_array("x", 64, np.float32), g.host_array("out", 1, np.float32)
    kernel = gd.cuda_source(code, "sum", emulate=total)
    g.memset(out, 0) >> g.kernel(kernel, grid=1, block=64, args=(x, out), shared_bytes=80256)
    with g.instantiate(device) as exe:
        exe["x"][:] = np.arange(64)
        exe.launch()
        exe.synchronize()
        assert exe["out"][0] == np.arange(64).sum()


TRITON = """
extern "C" __global__ void __launch_bounds__(64) add(
    const float* x, float* out, int n, unsigned long long* scratch, unsigned long long* profile)
{
    extern __shared__ float s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = x[i];
    if (i < n) out[i] = s[threadIdx.x] + 1 + (scratch != nullptr) + (profile != nullptr);
}"""


def triton_like(device):
    """What Triton's CompiledKernel has, around a kernel of its calling convention."""
    code = machine_code(gd.cuda_source(TRITON, "add"), device.limits.compute_capability)
    metadata = SimpleNamespace(
        name="add", shared=256, num_warps=2, num_ctas=1, cluster_dims=(1, 1, 1), launch_cooperative_grid=False,
        global_scratch_size=0, profile_scratch_size=0, target=SimpleNamespace(warp_size=32),
    )  # fmt: skip
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    return SimpleNamespace(asm={"cubin": code.build.cubin}, metadata=metadata, src=SimpleNamespace(signature=signature))


def test_the_calling_convention_of_triton(device):
    def add(x, out, n):
        i = cuda.grid(1)
        if i < n:
            out[i] = x[i] + 1

    g = gd.Graph("triton")
    n = g.param("n", np.int32, default=128)
    x, out = g.host_array("x", 128, np.float32), g.host_array("out", 128, np.float32)
    g.memset(out, 0) >> g.kernel(gd.triton(triton_like(device), emulate=add), grid=gd.cdiv(n, 64), args=(x, out, n))
    with g.instantiate(device) as exe:
        exe["x"][:] = np.arange(128)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"], np.arange(128) + 1)
        exe.update(n=70)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"], np.where(np.arange(128) < 70, np.arange(128) + 1, 0))


def test_conditions_are_set_from_cuda_cpp(device):
    code = """extern "C" __global__ void count(cudaGraphConditionalHandle more, int* counter) {
        *counter += 1;
        cudaGraphSetConditional(more, *counter < 5);
    }"""

    def count(more, counter):
        counter[0] += 1
        gd.device.set_condition(more, counter[0] < 5)

    g = gd.Graph("loop")
    counter, out = g.device_array("counter", 1, np.int32), g.host_array("out", 1, np.int32)
    more = g.condition("more", default=1)
    start = g.memset(counter, 0)
    with g.while_(more, name="loop", after=start) as body:
        body.kernel(gd.cuda_source(code, "count", emulate=count), grid=1, block=1, args=(more, counter))
    g.memcpy(out, counter, after=g.node("loop"))
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["out"][0] == 5


def test_a_wrong_count_or_size_never_reaches_the_driver(device):
    code = machine_code(gd.cuda_source(SCALE, "scale"), device.limits.compute_capability)
    kernel = gd.cubin(code.build.cubin, "scale", emulate=None)
    for args, field in (((3,), "args"), ((None, None, 1.0, 2, 3), "args"), ((None, None, 1.0, np.int64(2)), None)):
        g = gd.Graph("wrong")
        g.kernel(kernel, grid=1, block=32, args=args, name="run")
        with pytest.raises(gd.CheckError) as refused:
            g.instantiate(device)
        (found,) = refused.value.report.errors
        assert (found.code, found.node, found.field) == ("GD226", "run", field or "args[3]")


@pytest.mark.parametrize("block", [(32, 2), (16, 4), (16, 2), (64, 1)])
def test_a_block_that_the_kernel_was_not_compiled_for(device, block, monkeypatch):
    """The driver is asked without the checks."""
    code = SCALE_PTX.replace("{\n    .reg", ".reqntid 32, 2, 1 {\n    .reg")
    g = gd.Graph("block")
    x = g.host_array("x", 8, np.float32)
    kernel = gd.ptx(code, "scale", signature="const float*, float*, float, int", emulate=scale)
    g.kernel(kernel, grid=1, block=block, args=(x, x, 1.0, 8), name="run")
    monkeypatch.setattr("graphdsl.run.graph_exec.check", lambda *args, **options: gd.Report([], graph="", target=""))
    if block == (32, 2):
        with g.instantiate(device) as exe:
            exe["x"][:] = 3
            exe.launch()
            exe.synchronize()
        return
    with pytest.raises(gd.DriverError, match="node 'run'") as refused:
        g.instantiate(device)
    assert refused.value.code == 1


# On a GPU alone


@pytest.fixture
def gpu():
    return gd.cuda(0)


@pytest.mark.gpu
def test_a_kernel_that_cuda_core_has_loaded(gpu):
    from cuda.core import Device, Program, ProgramOptions

    current = Device(0)
    current.set_current()
    program = Program(SCALE, "c++", options=ProgramOptions(arch=f"sm_{current.arch}"))
    loaded = program.compile("cubin").get_kernel("scale")
    g = gd.Graph("loaded")
    x, y = g.host_array("x", 64, np.float32), g.host_array("y", 64, np.float32)
    gain = g.param("gain", np.float32, default=2.0)
    g.kernel(loaded, grid=1, block=64, args=(x, y, gain, 64), name="run")
    del loaded, program
    with g.instantiate(gpu) as exe:
        exe["x"][:] = np.arange(64)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["y"], 2 * np.arange(64))
        exe.update(gain=-1.0)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["y"], -np.arange(64))
    assert any("cuKernelGetFunction" in str(call) for call in g.trace(gpu.limits.compute_capability))
    with pytest.raises(gd.DriverError, match=r"node 'run'.*graphdsl\.cubin") as refused:
        g.instantiate(gd.emulator(target=gpu.limits.compute_capability))
    assert refused.value.code == 801


@pytest.mark.gpu
def test_a_loaded_kernel_is_asked_what_it_takes(gpu):
    from cuda.core import Device, Program, ProgramOptions

    current = Device(0)
    current.set_current()
    code = Program(SCALE, "c++", options=ProgramOptions(arch=f"sm_{current.arch}")).compile("cubin")
    g = gd.Graph("wrong")
    g.kernel(code.get_kernel("scale"), grid=1, block=64, args=(None, None, np.float64(1), 64), name="run")
    with pytest.raises(gd.CheckError) as refused:
        g.instantiate(gpu)
    (found,) = refused.value.report.errors
    assert (found.code, found.node, found.field) == ("GD226", "run", "args[2]")


@pytest.mark.gpu
def test_a_kernel_of_triton(gpu):
    triton = pytest.importorskip("triton")
    torch = pytest.importorskip("torch")
    tl = triton.language

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)

    data = torch.arange(1000, dtype=torch.float32, device="cuda")
    compiled = add.warmup(data, data, data, 1000, BLOCK=256, grid=(1,))
    g = gd.Graph("triton")
    n = g.param("n", np.int32, default=1000)
    x, out = g.external("x", data), g.host_array("out", 1000, np.float32)
    y = g.device_array("y", 1000, np.float32)
    [g.memset(y, 2), g.memset(out, 0)] >> g.kernel(compiled, grid=gd.cdiv(n, 256), args=(x, y, out, n))
    with g.instantiate(gpu) as exe:
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"], np.arange(1000) + 2)
