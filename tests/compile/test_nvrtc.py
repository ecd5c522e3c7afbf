"""What NVRTC makes of a source, and what it says of one that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cuda import pathfinder

from graphdsl.compile import nvrtc
from graphdsl.compile.elf import kernels, target_of
from graphdsl.compile.nvrtc import SourceError, compile_cpp
from graphdsl.errors import CompileError

SOURCE = "template <typename T> __global__ void fill(T* x) { *x = LIMIT; }\n__global__ void plain() {}"


def test_code_ptx_and_symbols() -> None:
    made = compile_cpp(
        SOURCE, "fill.cu", "sm_90", options={"define_macro": [("LIMIT", "7")]}, expressions=["fill<int>"]
    )
    assert made.symbols == {"fill<int>": "_Z4fillIiEvPT_"}
    assert kernels(made.code.code) == ["_Z4fillIiEvPT_", "_Z5plainv"]
    assert target_of(made.code.code) == (9, 0)
    assert ".entry _Z4fillIiEvPT_" in made.ptx


def test_headers_are_found_in_the_order_of_the_paths(tmp_path: Path) -> None:
    for name, text in (("first", "#define LIMIT 1"), ("second", "#define LIMIT missing")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "limit.h").write_text(text)
    paths = [str(tmp_path / "first")]
    options = {"include_path": str(tmp_path / "second")}
    compile_cpp('#include "limit.h"\n' + SOURCE, "fill.cu", "sm_90", options=options, include_paths=paths)
    with pytest.raises(SourceError, match="missing"):
        compile_cpp('#include "limit.h"\n__global__ void k(int* x) { *x = LIMIT; }', "k.cu", "sm_90", options=options)


def test_complaints() -> None:
    with pytest.raises(SourceError) as refused:
        compile_cpp("\n__global__ void k() { a; b; c; d; }", "k.cu", "sm_90")
    error = refused.value
    assert [(each.file, each.line) for each in error.complaints] == [("k.cu", 2)] * 4
    assert error.where == "k.cu(2): error: "
    assert error.essence() == (
        'identifier "a" is undefined; identifier "b" is undefined; identifier "c" is undefined (and 1 more)'
    )
    assert "4 errors detected" in error.log
    assert not error.lacks_runtime
    with pytest.raises(SourceError) as refused:
        compile_cpp("__global__ void k() { cudaGraphSetConditional(0, 1); }", "k.cu", "sm_90")
    assert refused.value.lacks_runtime


@pytest.mark.parametrize(
    "options", [{"nothing": 1}, {"define_macro": 3}, {"std": "c++98000"}, {"max_register_count": "x"}]
)
def test_options(options: dict[str, Any]) -> None:
    with pytest.raises((CompileError, SourceError)) as refused:
        compile_cpp(SOURCE, "fill.cu", "sm_90", options=options)
    assert getattr(refused.value, "field", "options") == "options"
    assert not getattr(refused.value, "complaints", ())


def test_a_machine_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: Any, **options: Any) -> None:
        raise pathfinder.DynamicLibNotFoundError("libnvrtc.so.13: not found")

    monkeypatch.setattr(nvrtc, "Program", absent)
    with pytest.raises(CompileError, match=r"libnvrtc\.so\.13.*graphdsl doctor") as refused:
        compile_cpp(SOURCE, "fill.cu", "sm_90")
    assert refused.value.value == "fill.cu"
