"""Parameters of kernels, read from CUDA C++ source text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.declare.cpp import identifier, kernel_parameters, mangled_prefix

SOURCE = r"""
// __global__ void scale(int commented);
/* __global__ void scale(int commented); */
const char* text = "__global__ void scale(int quoted)";
#define REAL double
typedef unsigned int index_t;
using vec = float4;
extern "C" __global__ void __launch_bounds__(128, (2)) scale(const float* __restrict__ x, REAL* y, // two
    /* gain, */ float gain, index_t n) { }
namespace math {
template <typename T, int N = 3> static __global__ void
  blend(T* p, vec* v, Array<T, N> q) { foo(p); }
}
__global__ void twice(int a); __global__ void twice(float a);
__global__ void later(int, float*);
__global__ void later(int n, float* out) { for (;;) {} }
template <class T> struct Other {};
__global__ void nothing() {}
__global__ void scale_more(int n) {}
MAKE_KERNEL(made)
"""


def listed(name: str) -> list[tuple[str, str]] | None:
    found = kernel_parameters(SOURCE, name)
    return None if found is None else [(each.name, each.type.text) for each in found]


def test_declarations():
    assert listed("scale") == [("x", "const float*"), ("y", "double*"), ("gain", "float"), ("n", "unsigned int")]
    assert listed("nothing") == []
    assert listed("scale_more") == [("n", "int")]
    assert listed("later") == [("n", "int"), ("out", "float*")]


def test_templates():
    assert listed("math::blend<double, 4>") == [("p", "double*"), ("v", "float4*"), ("q", "Array<double, 4>")]
    assert listed("math::blend<float>") == [("p", "float*"), ("v", "float4*"), ("q", "Array<float, 3>")]


@pytest.mark.parametrize("name", ["twice", "made", "missing", "foo"])
def test_what_is_not_understood_has_no_parameters(name):
    assert listed(name) is None


@given(st.text(alphabet="_global{}()<>,;*/\"' \n#template void k", max_size=200))
def test_any_text_is_read_without_failing(text):
    kernel_parameters(text + "__global__ void k(int n" + text, "k")


def test_names():
    assert [identifier(name) for name in ("k", "a::k", "a::k<b::c, 3>", "_Z1kPf", "_ZN1a1b1kEPf", "_Zx")] == [
        "k", "k", "k", "k", "k", "_Zx",
    ]  # fmt: skip
    assert mangled_prefix("a::kernel") == "_ZN1a6kernelE"
