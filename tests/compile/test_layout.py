"""How arguments lie in the parameter bytes: against the PTX that Numba makes, and there and back again."""

from __future__ import annotations

import collections
import enum
import math
import re
import struct
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

from graphdsl.compile.image import ArrayValue
from graphdsl.compile.numba import compile_kernel
from graphdsl.compile.signature import encode, pack, parameter_layout, unpack
from graphdsl.declare.kernel import Kernel
from graphdsl.errors import CompileError

Point = collections.namedtuple("Point", "x y")


class Mode(enum.IntEnum):
    FAST = 1
    EXACT = 2


class Colour(enum.Enum):
    RED = 1.5
    BLUE = 2.5


MODE, COLOUR = (types.IntEnumMember(Mode, types.int64), types.EnumMember(Colour, types.float64))
RECORD = from_dtype(np.dtype([("a", np.int8), ("b", np.float64), ("c", np.int16, 3)]))
ALIGNED = from_dtype(np.dtype([("a", np.int8), ("b", np.float64)], align=True))

INTEGERS = [getattr(types, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
SCALARS = [
    types.boolean,
    *INTEGERS,
    types.float16,
    types.float32,
    types.float64,
    types.complex64,
    types.complex128,
    types.NPDatetime("ns"),
    types.NPDatetime("D"),
    types.NPTimedelta("s"),
    MODE,
    COLOUR,
]
ARRAYS = [types.Array(types.float32, ndim, layout) for ndim in (1, 2, 3, 4) for layout in "CFA"]


def kernel_of(count: int) -> Kernel:
    names = ", ".join(f"a{i}" for i in range(count))
    space: dict[str, FunctionType] = {}
    exec(f"def kernel({names}):\n    pass", space)
    return Kernel(space["kernel"])


def ptx_parameters(ptx: str) -> list[tuple[int, int]]:
    """Offset and size of each parameter of the entry, by PTX's own rule: each is aligned to its size."""
    head = ptx[ptx.index(".entry") :]
    sizes = [int(bits) // 8 for bits in re.findall(r"\.param \.[bfsu](\d+) ", head[: head.index("{")])]
    assert head[: head.index("{")].count(".param") == len(sizes)
    offsets, end = [], 0
    for size in sizes:
        offsets.append(-(-end // size) * size)
        end = offsets[-1] + size
    return list(zip(offsets, sizes))


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(SCALARS, id="scalars"),
        pytest.param(
            [types.int8, types.float64, types.boolean, types.int16, types.complex64, types.int8], id="padding"
        ),
        pytest.param(ARRAYS, id="arrays"),
        pytest.param(
            [
                types.Array(types.int8, 0, "C"),
                types.Array(types.complex128, 1, "C", readonly=True),
                types.Array(types.boolean, 2, "A"),
                types.Array(types.float16, 1, "C"),
                types.Array(types.NPDatetime("ns"), 1, "C"),
            ],
            id="arrays of other elements",
        ),
        pytest.param(
            [RECORD, types.int8, ALIGNED, types.Array(RECORD, 1, "C"), types.Array(ALIGNED, 2, "F")], id="records"
        ),
        pytest.param(
            [
                types.UniTuple(types.int16, 3),
                types.Tuple((types.int8, types.float64, types.boolean)),
                types.Tuple((types.UniTuple(types.int8, 2), types.float32[:, ::1], types.complex64)),
                types.Tuple(()),
                types.UniTuple(types.float64[:], 2),
                types.Tuple((RECORD, types.Tuple((MODE, types.float16)))),
                types.NamedTuple((types.int8, types.float32[::1]), Point),
                types.int8,
            ],
            id="tuples",
        ),
        pytest.param([], id="nothing"),
    ],
)
def test_the_layout_is_that_of_the_ptx(kinds: list[Any]) -> None:
    image = compile_kernel(kernel_of(len(kinds)), tuple(kinds))
    layout = image.layout
    assert [(leaf.offset, leaf.dtype.itemsize) for leaf in layout.leaves] == ptx_parameters(image.ptx)
    assert (
        layout.nbytes
        == layout.struct.size
        == max((leaf.offset + leaf.dtype.itemsize for leaf in layout.leaves), default=0)
    )


def test_leaves_say_what_they_are() -> None:
    layout = parameter_layout(
        (types.int8, types.Tuple((types.complex64, types.float32[:, ::1])), RECORD), ("n", "pair", "r")
    )
    assert [(leaf.offset, leaf.dtype.name, leaf.argument, leaf.path) for leaf in layout.leaves] == [
        (0, "int8", 0, ()),
        (4, "float32", 1, ("item", 0, "real")),
        (8, "float32", 1, ("item", 0, "imag")),
        (16, "uint64", 1, ("item", 1, "meminfo")),
        (24, "uint64", 1, ("item", 1, "parent")),
        (32, "int64", 1, ("item", 1, "size")),
        (40, "int64", 1, ("item", 1, "itemsize")),
        (48, "uint64", 1, ("item", 1, "address")),
        (56, "int64", 1, ("item", 1, "shape", 0)),
        (64, "int64", 1, ("item", 1, "shape", 1)),
        (72, "int64", 1, ("item", 1, "strides", 0)),
        (80, "int64", 1, ("item", 1, "strides", 1)),
        (88, "uint64", 2, ("address",)),
    ]
    assert layout.nbytes == 96
    assert layout.names == ("n", "pair", "r")


def test_a_layout_is_made_once() -> None:
    assert parameter_layout((types.int8, types.float32[:])) is parameter_layout((types.int8, types.float32[:]))


@pytest.mark.parametrize(
    "kind",
    [
        types.none,
        types.unicode_type,
        types.CharSeq(4),
        types.bfloat16,
        types.IntegerLiteral(3),
        types.Optional(types.int32),
        types.CPointer(types.int8),
        types.Tuple((types.int8, types.none)),
        types.Array(types.pyobject, 1, "C"),
    ],
)
def test_a_type_that_cannot_be_passed_is_named(kind: Any) -> None:
    with pytest.raises(CompileError, match="argument 'y'") as caught:
        parameter_layout((types.int8, kind), ("x", "y"))
    assert caught.value.value == str(kind)


# Packing


def test_bytes_of_a_launch() -> None:
    layout = parameter_layout((types.int8, types.float32[:, ::1], types.complex64, types.boolean, types.float16))
    matrix = ArrayValue(2**63 + 64, (3, 5), (20, 4))
    packed = pack(layout, [-1, matrix, 1.5 - 2j, True, 0.5])
    assert packed == struct.pack("<b7x9Q2f?xe", -1 & -1, 0, 0, 15, 4, 2**63 + 64, 3, 5, 20, 4, 1.5, -2.0, True, 0.5)


def number_values(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype.kind == "b":
        return st.booleans()
    if dtype.kind in "iu":
        return st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if dtype.kind == "f":
        return st.floats(width=8 * dtype.itemsize, allow_nan=False)
    return st.complex_numbers(width=8 * dtype.itemsize, allow_nan=False)


def array_values(ndim: int) -> st.SearchStrategy[ArrayValue]:
    extents = st.tuples(*[st.integers(0, 1000)] * ndim)
    return st.builds(ArrayValue, st.integers(0, 2**64 - 1), extents, st.tuples(*[st.integers(-(2**40), 2**40)] * ndim))


def leaf_arguments() -> st.SearchStrategy[tuple[Any, Any]]:
    """A type and a value of it."""

    def with_kind(kind: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
        return st.tuples(st.just(kind), values)

    numbers = [from_dtype(np.dtype(code)) for code in "?bBhHiIqQefdFD"]
    return st.one_of(
        *[with_kind(kind, number_values(np.dtype(str(kind)))) for kind in numbers],
        with_kind(types.NPDatetime("us"), st.builds(np.datetime64, st.integers(-(2**62), 2**62), st.just("us"))),
        with_kind(types.NPTimedelta("D"), st.builds(np.timedelta64, st.integers(-(2**62), 2**62), st.just("D"))),
        with_kind(MODE, st.sampled_from(Mode)),
        with_kind(COLOUR, st.sampled_from(Colour)),
        with_kind(RECORD, array_values(0)),
        *[with_kind(types.Array(types.int16, ndim, "A"), array_values(ndim)) for ndim in range(5)],
    )


def in_tuples(arguments: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    def together(items: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        return types.BaseTuple.from_types([kind for kind, _ in items]), tuple(value for _, value in items)

    return st.lists(arguments, max_size=4).map(together)


@given(st.lists(st.recursive(leaf_arguments(), in_tuples, max_leaves=6), max_size=6))
def test_unpack_is_the_inverse_of_pack(arguments: list[tuple[Any, Any]]) -> None:
    kinds, values = tuple(kind for kind, _ in arguments), [value for _, value in arguments]
    layout = parameter_layout(kinds)
    packed = pack(layout, values)
    assert len(packed) == layout.nbytes
    found = unpack(layout, packed)
    assert found == values
    assert pack(layout, found) == packed
    assert unpack(layout, memoryview(packed + b"more")) == values
    leaves = [leaf for kind, value in arguments for leaf in encode(kind, value)]
    assert layout.struct.pack(*leaves) == packed


@pytest.mark.parametrize(
    "kind", [types.boolean, *INTEGERS, types.float16, types.float32, types.float64, types.complex64]
)
def test_numbers_come_back_in_their_exact_type(kind: Any) -> None:
    (found,) = unpack(layout := parameter_layout((kind,)), pack(layout, [1]))
    assert type(found) is np.dtype(str(kind)).type


def test_dates_come_back_in_their_unit() -> None:
    layout = parameter_layout((types.NPDatetime("ms"), types.NPTimedelta("h")))
    found = unpack(layout, pack(layout, [np.datetime64("NaT"), np.timedelta64(3, "h")]))
    assert [value.dtype.str for value in found] == ["<M8[ms]", "<m8[h]"]
    assert np.isnat(found[0])


def test_named_tuples_come_back_as_such() -> None:
    layout = parameter_layout((types.NamedTuple((types.int8, types.float64), Point),))
    assert unpack(layout, pack(layout, [Point(1, 2.5)]))[0].y == 2.5


def test_infinities_and_nan_are_passed() -> None:
    layout = parameter_layout((types.float16, types.float32, types.float64, types.complex64))
    found = unpack(layout, pack(layout, [math.inf, -math.inf, math.nan, complex(math.nan, math.inf)]))
    assert found[:2] == [math.inf, -math.inf]
    assert np.isnan(found[2])
    assert np.isnan(found[3].real)
    assert found[3].imag == math.inf


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (types.int8, 128),
        (types.uint32, -1),
        (types.int32, 1.0),
        (types.int32, "1"),
        (types.boolean, 2),
        (types.float32, 1e39),
        (types.float16, 1e5),
        (types.float32, 1j),
        (types.float64, True),
        (types.float64, 10**400),
        (types.complex64, 1e39j),
        (types.NPDatetime("s"), "yesterday"),
        (types.UniTuple(types.int8, 2), (1, 300)),
        (types.UniTuple(types.int8, 2), (1,)),
        (types.UniTuple(types.int8, 2), 1),
        (types.float32[:], 5),
        (types.float32[:], ArrayValue(0, (1, 2), (8, 4))),
        (types.float32[:], (1, 2, 3)),
        (RECORD, 5),
        (RECORD, ArrayValue(0, (1,), (8,))),
        (MODE, 1),
        (COLOUR, Mode.FAST),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(kind: Any, value: Any) -> None:
    layout = parameter_layout((types.int8, kind), ("first", "second"))
    with pytest.raises(CompileError, match="argument 'second'") as caught:
        pack(layout, [1, value])
    assert caught.value.remedy


@pytest.mark.parametrize("value", [np.int16(7), np.float64(0.1), np.bool_(True), np.complex64(1j), np.array(3)])
def test_numpy_numbers_are_packed(value: Any) -> None:
    kind = from_dtype(value.dtype)
    layout = parameter_layout((kind,))
    assert unpack(layout, pack(layout, [value])) == [value]


def test_the_number_of_values_must_be_right() -> None:
    with pytest.raises(CompileError, match="args = 1: the kernel has 2 parameters"):
        pack(parameter_layout((types.int8, types.int8)), [1])


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(CompileError, match="the parameters are 8 bytes"):
        unpack(parameter_layout((types.int64,)), b"\0" * 7)


@pytest.mark.parametrize("word", range(4))
def test_array_words_that_contradict_each_other_are_refused(word: int) -> None:
    layout = parameter_layout((types.float32[:],), ("x",))
    packed = bytearray(pack(layout, [ArrayValue(64, (5,), (4,))]))
    packed[8 * word] ^= 1
    with pytest.raises(CompileError, match=r"argument 'x'.*meminfo, parent, size and itemsize"):
        unpack(layout, bytes(packed))


def test_the_bytes_are_those_that_numba_passes() -> None:
    """Numba's own dispatcher prepares the same leaves for scalars and tuples, as far as it does without a device."""
    from numba.cuda.dispatcher import _Kernel

    prepare: Callable[..., None] = _Kernel._prepare_args
    kind = types.Tuple((types.int8, types.float16, types.complex64, types.float64, MODE))
    value = (3, 0.5, 1 - 2j, 2.5, Mode.EXACT)
    passed: list[Any] = []
    prepare(_Bare(), kind, value, 0, [], passed)
    raw = [bytes(leaf) if hasattr(leaf, "_type_") else leaf for leaf in passed]
    layout = parameter_layout((kind,))
    packed = pack(layout, [value])
    assert raw == [packed[leaf.offset : leaf.offset + leaf.dtype.itemsize] for leaf in layout.leaves]


class _Bare:
    """What `_Kernel._prepare_args` needs of a kernel."""

    extensions = ()

    def _prepare_args(self, *args: Any) -> None:
        from numba.cuda.dispatcher import _Kernel

        _Kernel._prepare_args(self, *args)
