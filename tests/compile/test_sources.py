"""Machine code of kernels that are not Numba's, and what it says of itself."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.compile import sources
from graphdsl.compile.arguments import source_types
from graphdsl.compile.elf import kernels
from graphdsl.compile.signature import pack, unpack
from graphdsl.compile.sources import MachineCode, machine_code, source_image
from graphdsl.declare.c_types import parse
from graphdsl.declare.sources import SourceKernel
from graphdsl.errors import CompileError

SOURCE = r"""
struct Pair { float a; char b; double c; };
struct alignas(64) Wide { char bytes[128]; };
namespace math {
template <typename T, int N> __global__ void blend(T* p, Pair q, bool flag) { p[N] = q.c + flag; }
}
__global__ void plain(const double* x, long long n, double2 z) { ((double*)x)[n] = z.x; }
__global__ void many(int a) {}
__global__ void many(float a) {}
extern "C" __global__ void wide(char a, const __grid_constant__ Wide w, short s) { if (a) __trap(); }
__global__ void __block_size__((32, 2, 1)) blocked(float* x) {
    __shared__ float s[100]; s[threadIdx.x] = *x; *x = s[1];
}
"""

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .f32 gain, .param .align 4 .b8 s[12]) { ret; }
.visible .entry _Z5otherPf(.param .u64 x) .reqntid 32 { ret; }
"""


def sizes(code: MachineCode) -> tuple[int, ...]:
    return tuple(slot.nbytes for slot in code.slots)


def refused(kernel: SourceKernel, target: tuple[int, int] = (9, 0)) -> CompileError:
    with pytest.raises(CompileError) as found:
        machine_code(kernel, target, node="node", location=("graph.py", 3))
    assert (found.value.node, found.value.location) == ("node", ("graph.py", 3))
    return found.value


@pytest.mark.parametrize("target", [(8, 0), (9, 0), (10, 0)])
def test_parameters_are_those_of_the_machine_code(target: tuple[int, int]) -> None:
    source = SOURCE if target >= (9, 0) else SOURCE.replace("__block_size__((32, 2, 1))", "")
    blend = machine_code(gd.cuda_source(source, "math::blend<float, 3>"), target)
    assert blend.entry == "_ZN4math5blendIfLi3EEEvPT_4Pairb"
    assert (blend.target, sizes(blend)) == (target, (8, 16, 1))
    assert sizes(machine_code(gd.cuda_source(source, "plain"), target)) == (8, 8, 16)
    wide = machine_code(gd.cuda_source(source, "wide"), target)
    assert sizes(wide) == (1, 128, 2)
    offsets = [offset for offset, _ in wide.resources.parameters]
    assert offsets[0] == 0
    assert offsets[2] == offsets[1] + 128


def test_what_a_kernel_needs() -> None:
    image = source_image(gd.cuda_source(SOURCE, "blocked"), (), machine_code(gd.cuda_source(SOURCE, "blocked"), (9, 0)))
    assert (image.block, image.max_threads, image.shared_bytes) == ((32, 2, 1), 64, 400)
    assert (image.function, image.loaded) == (None, None)
    assert ".entry _Z7blockedPf" in image.ptx


def test_ptx_and_cubins() -> None:
    scale = machine_code(gd.ptx(PTX, "scale"), (9, 0))
    assert (scale.entry, scale.target, sizes(scale)) == ("scale", (9, 0), (8, 4, 12))
    other = machine_code(gd.ptx(PTX, "other"), (9, 0))
    assert (other.entry, other.resources.block) == ("_Z5otherPf", (32, 1, 1))
    given = machine_code(gd.cubin(other.build.cubin, "_Z5otherPf"), (9, 0))
    assert given.resources == other.resources
    assert kernels(given.build.cubin) == ["_Z5otherPf", "scale"]


def test_kernels_of_one_source_share_machine_code() -> None:
    plain, wide = (machine_code(gd.cuda_source(SOURCE, name), (9, 0)) for name in ("plain", "wide"))
    assert plain.build is wide.build
    blend = machine_code(gd.cuda_source(SOURCE, "math::blend<float, 3>"), (9, 0))
    assert blend.build is not plain.build


# What is refused


def test_what_is_wrong_with_a_source() -> None:
    error = refused(gd.cuda_source(SOURCE.replace("z.x", "z.q"), "plain"))
    assert 'class "double2" has no member "q"' in error.rule
    assert error.value.startswith("plain.cu:7 `__global__ void plain(")
    assert "compilation" in str(error.__cause__)
    error = refused(gd.cuda_source(SOURCE + "__global__ void bad() { one; two; three; four; five; }", "plain"))
    assert 'identifier "three" is undefined (and 2 more)' in error.rule


def test_what_is_wrong_with_options() -> None:
    assert refused(gd.cuda_source(SOURCE, "plain", options={"std": "c++3000"})).field == "options"
    error = refused(gd.cuda_source(SOURCE, "plain", options={"stdd": "c++20"}))
    assert (error.field, error.value) == ("options", "{'stdd': 'c++20'}")


@pytest.mark.parametrize(
    ("kernel", "rule"),
    [
        (gd.cuda_source(SOURCE, "missing"), "no kernel of this name"),
        (gd.cuda_source(SOURCE, "math::missing<int>"), "no kernel of this name"),
        (gd.cuda_source(SOURCE, "many"), "2 kernels of this name"),
        (gd.ptx(PTX, "missing"), "no kernel of this name"),
        (gd.ptx(PTX), "2 kernels, and one must be named"),
    ],
)
def test_names(kernel: SourceKernel, rule: str) -> None:
    error = refused(kernel)
    assert error.field == "name"
    assert rule in error.rule


def test_mangled_names_choose_between_overloads() -> None:
    assert machine_code(gd.cuda_source(SOURCE, "_Z4manyf"), (9, 0)).entry == "_Z4manyf"


def test_ptx_that_is_none() -> None:
    error = refused(gd.ptx(PTX.replace("ret;", "return;"), "scale"))
    assert (error.field, error.value) == ("kernel", "scale")
    assert "return" in error.rule


def test_machine_code_for_other_devices() -> None:
    cubin = gd.cubin(machine_code(gd.ptx(PTX, "scale"), (8, 6)).build.cubin, "scale")
    assert machine_code(cubin, (8, 9)).target == (8, 6)
    for target in ((8, 0), (9, 0), (7, 5)):
        error = refused(cubin, target)
        assert (error.field, error.rule.count("sm_86")) == ("kernel", 1)
    assert "cannot be read" in refused(gd.cubin(b"\x7fELF\x02\x01", "scale")).rule


@pytest.mark.parametrize(
    ("signature", "value"),
    [
        ("const double* x, int n, double2 z", "int n"),
        ("const double* x, long long n", "const double* x, long long n"),
        ("", "no parameters"),
        ("double, long long, double2, int", "double 0, long long 1, double2 2, int 3"),
        (["double*", np.float64, np.dtype([("x", "f4")])], "[('x', '<f4')] 2"),
    ],
)
def test_signatures_that_the_code_has_not(signature: Any, value: str) -> None:
    error = refused(gd.cuda_source(SOURCE, "plain", signature=signature))
    assert (error.field, error.value) == ("signature", value)


# Compiled once


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    for name in ("_compiled", "_assembled"):
        original = getattr(sources, name)
        monkeypatch.setattr(
            sources, name, lambda kernel, *rest, original=original: made.append(kernel.name) or original(kernel, *rest)
        )
    return made


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process."""
    sources._codes.clear()
    sources._builds.clear()


def test_a_process_and_the_disk_remember(monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    made = counted(monkeypatch)
    fresh(monkeypatch)
    plain = machine_code(gd.cuda_source(SOURCE, "plain"), (9, 0))
    again = machine_code(gd.cuda_source(SOURCE, "plain"), (9, 0))
    blend = machine_code(gd.cuda_source(SOURCE, "math::blend<float, 3>"), (9, 0))
    scale = machine_code(gd.ptx(PTX, "scale"), (9, 0))
    assert made == ["plain", "blend", "scale"]
    assert again.build is plain.build
    fresh(monkeypatch)
    assert machine_code(gd.cuda_source(SOURCE, "wide"), (9, 0)).build.cubin == plain.build.cubin
    stored = machine_code(gd.cuda_source(SOURCE, "math::blend<float, 3>"), (9, 0))
    assert (stored.entry, stored.build.cubin) == (blend.entry, blend.build.cubin)
    assert machine_code(gd.ptx(PTX, "other"), (9, 0)).build.cubin == scale.build.cubin
    assert made == ["plain", "blend", "scale"]
    machine_code(gd.cuda_source(SOURCE, "plain", options={"use_fast_math": True}), (9, 0))
    machine_code(gd.cuda_source(SOURCE, "plain"), (10, 0))
    machine_code(gd.cuda_source(SOURCE + " ", "plain"), (9, 0))
    assert made[3:] == ["plain"] * 3
    for path in cache_folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    fresh(monkeypatch)
    machine_code(gd.cuda_source(SOURCE, "plain"), (9, 0))
    assert made[6:] == ["plain"]


def test_headers_count_as_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = counted(monkeypatch)
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "outer.h").write_text('#pragma once\n#include "inner.h"\n')
    inner = folder / "inner.h"
    inner.write_text("typedef float number;\n")
    kernel = gd.cuda_source(
        '#include <cuda_fp16.h>\n#include "outer.h"\n__global__ void k(number* x, number y) { *x = y; }',
        "k",
        options={"include_path": str(folder)},
    )
    assert sizes(machine_code(kernel, (9, 0))) == (8, 4)
    assert sizes(machine_code(kernel, (9, 0))) == (8, 4)
    assert made == ["k"]
    inner.write_text("typedef double number;\n")
    os.utime(inner, ns=(1, 1))
    assert sizes(machine_code(kernel, (9, 0))) == (8, 8)
    fresh(monkeypatch)
    inner.write_text("typedef float number;\n")
    assert sizes(machine_code(kernel, (9, 0))) == (8, 4)
    assert made == ["k", "k"]


def test_headers_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "types.h").write_text("typedef double number;\n")
    path = tmp_path / "kernel.cu"
    path.write_text('#include "types.h"\nextern "C" __global__ void k(number y) {}\n')
    assert sizes(machine_code(gd.cuda_source(path, "k"), (9, 0))) == (8,)
    path.write_text('#include "types.h"\nextern "C" __global__ void k(number y) { missing(); }\n')
    assert refused(gd.cuda_source(path, "k")).value.startswith(f"{path}:2 `extern")


def test_what_cannot_be_told_by_content_is_compiled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    kernel = gd.cuda_source("#define WHICH <cuda_fp16.h>\n#include WHICH\n__global__ void k(__half* x) {}", "k")
    for _ in range(2):
        machine_code(kernel, (9, 0))
    assert made == ["k", "k"]


def test_the_device_runtime_is_linked_where_it_is_used() -> None:
    condition = gd.cuda_source(
        'extern "C" __global__ void k(cudaGraphConditionalHandle h) { cudaGraphSetConditional(h, 1); }', "k"
    )
    assert len(machine_code(condition, (9, 0)).build.cubin) < 20_000
    launch = gd.cuda_source(
        '__global__ void child(int* x) {}\nextern "C" __global__ void k(int* x) { child<<<1, 1>>>(x); }', "k"
    )
    assert sizes(machine_code(launch, (9, 0))) == (8,)
    missing = gd.cuda_source('extern "C" __global__ void k() { cudaNotThere(); }', "k")
    assert "cudaNotThere" in refused(missing).rule


# Arguments


def typed(kernel: SourceKernel, *args: Any) -> Any:
    code = machine_code(kernel, (9, 0))
    found = source_types(kernel, args, code.slots)
    if isinstance(found, list):
        return [(error.field, error.rule) for error in found]
    image = source_image(kernel, found, code)
    assert source_image(kernel, found, code) is image
    return image


def test_packed_arguments_lie_where_the_code_reads_them() -> None:
    source = "struct P { char a; double b; };\n__global__ void k(char c, P p, float2 z, short s, bool f, float* q) {}"
    kernel = gd.cuda_source(source, "k")
    record = np.array((1, 2.5), np.dtype([("a", "i1"), ("b", "f8")], align=True))[()]
    image = typed(kernel, -3, record, 1 - 2j, 500, True, None)
    assert [str(kind) for kind in image.layout.types] == [
        "int8", "struct of 16 bytes", "complex64", "int16", "bool", "float32*",
    ]  # fmt: skip
    data = pack(image.layout, (-3, record, 1 - 2j, 500, True, None))
    assert image.layout.parameters == ((0, 1), (8, 16), (24, 8), (32, 2), (34, 1), (40, 8))
    assert len(data) == 48
    c, p, z, s, f, q = unpack(image.layout, data)
    assert (c, p.a, p.b, z, s, f, q.address) == (-3, 1, 2.5, 1 - 2j, 500, True, 0)


def test_addresses_that_a_compiler_adds_are_null() -> None:
    code = b"__global__ void k(int n, void* a, void* b) {}"
    kernel = SourceKernel("cuda", code, "k", types=parse("int n"), hidden=2)
    image = typed(kernel, 7)
    assert image.layout.parameters == ((0, 4), (8, 8), (16, 8))
    assert image.layout.nbytes == 24
    more = SourceKernel("cuda", kernel.code, "k", types=kernel.types, hidden=1)
    assert refused(more).field == "signature"


def test_sizes_alone() -> None:
    g = gd.Graph()
    x, n, gain = g.device_array("x", 8, np.float32), g.param("n", np.int64), g.param("gain", np.float32)
    scale = gd.cubin(machine_code(gd.ptx(PTX, "scale"), (9, 0)).build.cubin, "scale")
    for args, types in (
        ((x, gain, b"123456789012"), ["float32*", "float32", "struct of 12 bytes"]),
        ((n, 3, b"123456789012"), ["int64", "int32", "struct of 12 bytes"]),
        ((2**63, 2**31, b"123456789012"), ["uint64", "uint32", "struct of 12 bytes"]),
        ((None, 1.5, b"123456789012"), ["uint8*", "float32", "struct of 12 bytes"]),
        ((1j, np.uint32(3), b"123456789012"), ["complex64", "uint32", "struct of 12 bytes"]),
    ):
        assert [str(kind) for kind in typed(scale, *args).layout.types] == types
    for args, field in (
        ((gain, 3, b"123456789012"), "args[0]"),
        ((x, n, b"123456789012"), "args[1]"),
        ((x, True, b"123456789012"), "args[1]"),
        ((x, 2**32, b"123456789012"), "args[1]"),
        ((x, 3, b"12345678901"), "args[2]"),
        ((x, 3, x), "args[2]"),
        ((x, 3, "text"), "args[2]"),
        ((x, 3), "args"),
        ((x, 3, 4, 5), "args"),
    ):
        assert [found for found, _ in typed(scale, *args)] == [field]


def test_ptx_tells_which_numbers_are_floats() -> None:
    scale = gd.ptx(PTX, "scale")
    structure = b"123456789012"
    assert str(typed(scale, None, 2, structure).layout.types[1]) == "float32"
    assert [field for field, _ in typed(scale, None, gd.Graph().param("n", np.int32), structure)] == ["args[1]"]
    source = '#define HALF(name) double name\nextern "C" __global__ void k(HALF(x), float y) {}'
    kernel = gd.cuda_source(source, "k")
    assert [slot.is_float for slot in machine_code(kernel, (9, 0)).slots] == [True, True]
    assert [str(kind) for kind in typed(kernel, 1, 2).layout.types] == ["float64", "float32"]


def test_a_kernel_that_is_loaded_is_asked() -> None:
    info = SimpleNamespace
    attributes = info(num_regs=40, shared_size_bytes=16, max_threads_per_block=512, binary_version=90)
    origin = info(attributes=attributes, arguments_info=[info(offset=0, size=8), info(offset=8, size=4)])
    kernel = SourceKernel("loaded", b"", None, origin=origin)
    code = machine_code(kernel, (9, 0))
    image = source_image(kernel, source_types(kernel, (None, 3), code.slots), code)
    assert image.loaded is origin
    assert (image.registers, image.shared_bytes, image.max_threads, image.cubin) == (40, 16, 512, b"")
    assert image.layout.parameters == ((0, 8), (8, 4))
    assert "sm_90" in refused(kernel, (8, 0)).rule
    assert refused(SourceKernel("loaded", b"", None, origin=info())).field == "kernel"
