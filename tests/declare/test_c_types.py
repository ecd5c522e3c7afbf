"""Parameters in C++, read from text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.declare.c_types import Parameter, Pointer, Value, holds, parse, split
from graphdsl.errors import DeclarationError

FLOAT4 = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("w", "f4")])


@pytest.mark.parametrize(
    ("text", "name", "element", "readonly"),
    [
        ("float* x", "x", "f4", False),
        ("float *x", "x", "f4", False),
        ("float*", "0", "f4", False),
        ("const float* __restrict__ x", "x", "f4", True),
        ("float const * const x", "x", "f4", True),
        ("float* const x", "x", "f4", False),
        ("const volatile unsigned char *restrict bytes", "bytes", "u1", True),
        ("void* p", "p", None, False),
        ("const void*", "0", None, True),
        ("struct Particle* p", "p", None, False),
        ("int x[]", "x", "i4", False),
        ("const double x[3][4]", "x", "f8", True),
        ("float** rows", "rows", "u8", False),
        ("const float* const* rows", "rows", "u8", True),
        ("const float** rows", "rows", "u8", False),
        ("unsigned long long* n", "n", "u8", False),
        ("cuda::std::complex<float>* z", "z", "c8", False),
        ("std::uint16_t *v", "v", "u2", False),
        ("const float4* v", "v", FLOAT4, True),
        ("__half* h", "h", "f2", False),
    ],
)
def test_pointers(text, name, element, readonly):
    (parameter,) = parse(text)
    assert parameter.name == name
    assert isinstance(parameter.type, Pointer)
    assert parameter.type.element == (None if element is None else np.dtype(element))
    assert parameter.type.readonly is readonly


@pytest.mark.parametrize(
    ("text", "name", "dtype"),
    [
        ("float gain", "gain", "f4"),
        ("float", "0", "f4"),
        ("const int n", "n", "i4"),
        ("const int", "0", "i4"),
        ("unsigned", "0", "u4"),
        ("unsigned n", "n", "u4"),
        ("long long int n", "n", "i8"),
        ("unsigned long n", "n", np.dtype("L")),
        ("signed char c", "c", "i1"),
        ("short", "0", "i2"),
        ("bool flag", "flag", "?"),
        ("size_t n", "n", "u8"),
        ("std::size_t", "0", "u8"),
        ("::cuda::std::int64_t n", "n", "i8"),
        ("cudaTextureObject_t t", "t", "u8"),
        ("cuDoubleComplex z", "z", "c16"),
        ("float4 v", "v", FLOAT4),
        ("const __grid_constant__ CUtensorMap map", "map", None),
        ("ns::Pair<int, 3> p", "p", None),
        ("alignas(64) Params p", "p", None),
        ("void (*callback)(int)", "callback", None),
        ("const Params& p", "p", None),
        ("int n = 4", "n", "i4"),
    ],
)
def test_values(text, name, dtype):
    (parameter,) = parse(text)
    assert parameter.name == name
    assert isinstance(parameter.type, Value)
    assert parameter.type.dtype == (None if dtype is None else np.dtype(dtype))


def test_lists():
    assert parse("") == parse("void") == parse([]) == ()
    assert [each.name for each in parse("const float* x, Pair<int, 3>, int n")] == ["x", "1", "n"]
    record = np.dtype([("a", "f4"), ("b", "i8")])
    pointer, number, structure = parse(["float* y", np.int64, record])
    assert (pointer.name, number.type.dtype, structure.type.dtype) == ("y", np.int64, record)


def test_other_names_for_types():
    aliases = {"T": "real", "real": "double", "index": "unsigned int", "loop": "loop2", "loop2": "loop"}
    x, n, odd = parse("const T* x, index n, loop p", aliases)
    assert x == Parameter("x", Pointer("const double*", np.dtype("f8"), True))
    assert n.type.dtype == np.uint32
    assert odd.type.dtype is None
    assert parse("ns::T v", aliases)[0].type.dtype is None  # another one
    assert parse("P v", {"P": "float*"})[0].type == Pointer("float*", np.dtype("f4"))


@pytest.mark.parametrize("wrong", [3, None, b"float*", ["float*", None], ["float*", object], "float* x,, int n", "..."])
def test_what_is_no_signature(wrong):
    with pytest.raises(DeclarationError, match="in C\\+\\+") as refused:
        parse(wrong)
    assert refused.value.field == "signature"


def test_names_are_different():
    with pytest.raises(DeclarationError, match="different"):
        parse("int n, float n")


@given(st.lists(st.sampled_from(["float* x", "Pair<int, 3>", "int (*f)(int, int)", "a[2]", "T<U<1, 2>, 3> z"])))
def test_commas_inside_brackets_part_nothing(parts):
    assert split(", ".join(parts)) == parts


def test_what_memory_a_pointer_takes():
    yes = [
        (None, "i4"), ("f4", "f4"), ("i1", "u1"), ("u1", "?"), (FLOAT4, "f4"), (FLOAT4, FLOAT4),
        (FLOAT4, [("a", "i8"), ("b", "i8")]), ([("x", "f4"), ("y", "f4")], "c8"), ("c8", [("x", "f4"), ("y", "f4")]),
    ]  # fmt: skip
    no = [("f4", "i4"), ("f4", "f8"), ("i4", "u4"), (FLOAT4, "i4"), (FLOAT4, "f8"), (FLOAT4, "c16"), ("c8", "f8")]
    for element, dtype in yes:
        assert holds(None if element is None else np.dtype(element), np.dtype(dtype)), (element, dtype)
    for element, dtype in no:
        assert not holds(np.dtype(element), np.dtype(dtype)), (element, dtype)
