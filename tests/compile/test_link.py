"""Linking PTX with code of every kind, and what is said when it fails."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from numba import cuda
from numba.cuda import types

from graphdsl.compile.elf import read_resources
from graphdsl.compile.link import Code, arch_of, device_runtime, link
from graphdsl.errors import CompileError

KERNEL = b"""
.version 8.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) twice(.param .b32 a);
.visible .entry kernel(.param .u64 p) {
    .reg .u64 %rd; .reg .b32 %r;
    ld.param.u64 %rd, [p];
    ld.global.u32 %r, [%rd];
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r; call.uni (r), twice, (a); ld.param.b32 %r, [r]; }
    st.global.u32 [%rd], %r;
    ret;
}
"""
SOURCE = 'extern "C" __device__ int twice(int a) { return 2 * a; }'


def links(*codes: Code, target: tuple[int, int] = (9, 0)) -> bool:
    cubin = link([Code("ptx", KERNEL, "kernel"), *codes], target)
    return read_resources(cubin, "kernel", target).parameters == ((0, 8),)


def test_cuda_source_is_compiled_and_linked() -> None:
    assert links(Code("cu", SOURCE.encode(), "twice.cu"))


def test_headers_of_the_toolkit_and_of_the_user_are_found(tmp_path: Path) -> None:
    (tmp_path / "mine.cuh").write_text(SOURCE)
    source = Code("cu", b"#include <cuda_fp16.h>\n#include <mine.cuh>\n", "twice.cu")
    assert link([Code("ptx", KERNEL, "kernel"), source], (9, 0), include_paths=[str(tmp_path)])
    with pytest.raises(CompileError, match=r"twice\.cu\(2\).*cannot open source file"):
        links(source)


def test_intermediate_code_is_linked() -> None:
    def twice(a):  # type: ignore[no-untyped-def]
        return 2 * a

    signature = types.int32(types.int32)
    code, _ = cuda.compile(twice, signature, device=True, abi="c", cc=(9, 0), output="ltoir")
    assert links(Code("ltoir", code, "twice"))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(("kind", "flag"), [("ptx", "-ptx"), ("cubin", "-cubin"), ("fatbin", "-fatbin"), ("o", "-dc")])
def test_files_that_nvcc_makes_are_linked(tmp_path: Path, kind: str, flag: str) -> None:
    source, made = tmp_path / "twice.cu", tmp_path / f"twice.{kind}"
    source.write_text(SOURCE)
    subprocess.run(["nvcc", "-arch=sm_90", "-rdc=true", flag, source, "-o", made], check=True, capture_output=True)
    assert links(Code(kind, made.read_bytes(), made.name))
    if kind == "o" and shutil.which("ar"):
        archive = tmp_path / "twice.a"
        subprocess.run(["ar", "rcs", archive, made], check=True)
        assert links(Code("a", archive.read_bytes(), archive.name))


def test_the_device_runtime_is_found() -> None:
    ptx = KERNEL.replace(b"twice", b"cudaGetLastError").replace(b"(.param .b32 a)", b"()").replace(b", (a)", b"")
    assert link([Code("ptx", ptx, "kernel"), device_runtime()], (9, 0))
    with pytest.raises(CompileError, match="Undefined reference to 'cudaGetLastError'"):
        link([Code("ptx", ptx, "kernel")], (9, 0))


@pytest.mark.parametrize(
    ("codes", "target", "why"),
    [
        ([], (9, 0), "Undefined reference to 'twice'"),
        ([Code("cu", SOURCE.encode(), "twice.cu")], (9, 9), "NVRTC|UNRECOGNIZED_ARCH"),
        ([Code("cubin", b"nonsense", "twice.cubin")], (9, 0), "bad input"),
        ([Code("cu", b"int twice(int a) { return }", "twice.cu")], (9, 0), r"twice\.cu\(1\): error: .*expected"),
        ([Code("zip", b"", "twice.zip")], (9, 0), "what can be linked is ptx, cubin"),
        ([Code("ptx", b"nonsense", "twice.ptx")], (9, 0), "nvJitLink does not link it for sm_90"),
    ],
)  # fmt: skip
def test_what_cannot_be_linked_is_named(codes: list[Code], target: tuple[int, int], why: str) -> None:
    with pytest.raises(CompileError, match=why) as caught:
        links(*codes, target=target)
    assert caught.value.field == "link"
    assert caught.value.remedy


def test_names_of_architectures() -> None:
    assert [arch_of(target) for target in ((7, 5), (9, 0), (12, 1))] == ["sm_75", "sm_90", "sm_121"]
