"""Which types a launch has: from operands, from declared signatures, and what is refused by name."""

from __future__ import annotations

import collections
import enum
from typing import Any

import numpy as np
import pytest
from numba.cuda import types

from graphdsl.compile.signature import argument_types
from graphdsl.declare.definition import Definition
from graphdsl.declare.kernel import Kernel, as_kernel
from graphdsl.errors import CompileError

Pair = collections.namedtuple("Pair", "first second")
PARTICLE = np.dtype([("position", np.float32, 3), ("charge", np.int8)], align=True)


class Mode(enum.IntEnum):
    FAST = 1
    EXACT = 2


class Colour(enum.Enum):
    RED = 1.5


def one(value: Any) -> None:
    pass


def scale(x: Any, y: Any, gain: Any, n: Any) -> None:
    pass


def type_of(operand: Any, **options: Any) -> Any:
    (found,) = argument_types(as_kernel(one), (operand,), **options)
    return found


@pytest.fixture
def graph() -> Definition:
    return Definition()


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_params_and_expressions_have_the_type_of_their_dtype(graph: Definition, dtype: str) -> None:
    param = graph.param("p", dtype)
    name = {"?": "bool"}.get(dtype, np.dtype(dtype).name)
    assert str(type_of(param)) == name
    if dtype[0] in "iufc":
        assert str(type_of(param + param)) == name


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (3, types.int64),
        (-(2**63), types.int64),
        (2**63, types.uint64),
        (1.5, types.float64),
        (1j, types.complex128),
        (True, types.boolean),
        (np.float32(1), types.float32),
        (np.float16(1), types.float16),
        (np.uint8(1), types.uint8),
        (np.bool_(True), types.boolean),
        (np.complex64(1j), types.complex64),
        (np.datetime64("2026-01-01", "s"), types.NPDatetime("s")),
        (np.timedelta64(3, "ms"), types.NPTimedelta("ms")),
        ((1, 2.0), types.Tuple((types.int64, types.float64))),
        (((1, 2), True), types.Tuple((types.UniTuple(types.int64, 2), types.boolean))),
        ((), types.Tuple(())),
        (Pair(1, 2.0), types.NamedTuple((types.int64, types.float64), Pair)),
    ],
)
def test_literals_are_typed_as_numba_types_them(value: Any, wanted: Any) -> None:
    assert type_of(value) == wanted


def test_enum_members() -> None:
    assert type_of(Mode.FAST).instance_class is Mode
    assert type_of(Mode.FAST).dtype == types.int64
    assert type_of(Colour.RED).dtype == types.float64


def test_arrays_follow_dtype_dimensions_and_layout(graph: Definition) -> None:
    matrix = graph.device_array("m", (4, 6), np.float32)
    fortran = graph.external("f", np.zeros((4, 6), order="F"))
    assert type_of(matrix) == types.float32[:, ::1]
    assert type_of(matrix[1]) == types.float32[::1]
    assert type_of(matrix[:, 1]) == types.float32[:]
    assert type_of(fortran) == types.float64[::1, :]
    assert type_of(matrix[1, 2]) == types.Array(types.float32, 0, "C")
    assert type_of((matrix, 3)) == types.Tuple((types.float32[:, ::1], types.int64))


def test_readonly_memory_gives_a_readonly_array(graph: Definition) -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert type_of(graph.external("f", frozen)) == types.Array(types.float64, 1, "C", readonly=True)


def test_one_structure_is_a_record_and_several_an_array_of_records(graph: Definition) -> None:
    particles = graph.device_array("particles", 5, PARTICLE)
    assert type_of(particles) == types.Array(type_of(particles[2]), 1, "C")
    assert isinstance(type_of(particles[2]), types.Record)
    assert type_of(particles[2]).aligned


def test_a_single_structure_may_be_declared_as_an_array_of_no_dimensions(graph: Definition) -> None:
    particles = graph.device_array("particles", 5, PARTICLE)
    wanted = types.Array(type_of(particles[2]), 0, "C")
    assert type_of(particles[2], signature=(wanted,)) == wanted


def test_the_same_kinds_of_operands_give_the_same_object(graph: Definition) -> None:
    x, y = graph.device_array("x", 8, np.float32), graph.device_array("y", 9, np.float32)
    n = graph.param("n", np.int32)
    kernel = as_kernel(scale)
    first = argument_types(kernel, (x, y, 1.0, n))
    assert argument_types(kernel, (y, x[:n], 2.5, n)) is first
    assert argument_types(kernel, (y, x[::2], 2.5, n)) is not first
    assert argument_types(kernel, (y, x, 2, n)) is not first


def test_forgotten_literals_are_derived_again() -> None:
    kernel = as_kernel(one)
    for value in range(10_000):
        argument_types(kernel, ((value, 2**63 + value),))
    assert argument_types(kernel, ((0, 2**63),)) == (types.Tuple((types.int64, types.uint64)),)


# Declared signatures


@pytest.mark.parametrize(
    "signature", ["void(float32[:])", "(float32[:],)", types.void(types.float32[:]), (types.float32[:],)]
)
def test_a_signature_may_be_written_in_each_way(graph: Definition, signature: Any) -> None:
    assert type_of(graph.device_array("x", 8, np.float32), signature=signature) == types.float32[:]


@pytest.mark.parametrize(
    ("dtype", "wanted", "fits"),
    [
        ("i4", types.int64, True),
        ("i4", types.float64, True),
        ("i4", types.float32, False),
        ("i2", types.float32, True),
        ("i8", types.int32, False),
        ("i8", types.float64, False),
        ("u8", types.complex128, False),
        ("u4", types.int64, True),
        ("u4", types.int32, False),
        ("i4", types.uint64, False),
        ("f4", types.float64, True),
        ("f8", types.float32, False),
        ("f4", types.complex64, True),
        ("f4", types.int64, False),
        ("c8", types.complex128, True),
        ("c8", types.float64, False),
        ("?", types.int8, True),
        ("?", types.float32, False),
    ],
)
def test_params_convert_only_without_loss(graph: Definition, dtype: str, wanted: Any, fits: bool) -> None:
    param = graph.param("p", dtype)
    if fits:
        assert type_of(param, signature=(wanted,)) == wanted
    else:
        with pytest.raises(CompileError, match="does not convert to it without loss"):
            type_of(param, signature=(wanted,))


@pytest.mark.parametrize(
    ("value", "wanted", "fits"),
    [
        (127, types.int8, True),
        (128, types.int8, False),
        (-1, types.uint64, False),
        (3, types.float32, True),
        (0.1, types.float32, True),
        (1e300, types.float32, False),
        (2.0, types.int32, False),
        (True, types.int32, True),
        (1, types.boolean, True),
        (2, types.boolean, False),
        (np.float64(0.5), types.float16, True),
        (Mode.EXACT, types.int8, True),
        (1 + 0j, types.float64, False),
        ((1, 2), types.UniTuple(types.int32, 2), True),
        ((1, 2**40), types.UniTuple(types.int32, 2), False),
        ((1, 2, 3), types.UniTuple(types.int32, 2), False),
        (np.datetime64(1, "s"), types.NPDatetime("ms"), False),
        (1, types.bfloat16, False),
        (1, types.float32[:], False),
        (1, types.IntegerLiteral(1), False),
        (1, types.CPointer(types.int8), False),
    ],
)
def test_literals_convert_by_their_values(value: Any, wanted: Any, fits: bool) -> None:
    if fits:
        assert type_of(value, signature=(wanted,)) == wanted
    else:
        with pytest.raises(CompileError, match="does not convert to it without loss"):
            type_of(value, signature=(wanted,))


def test_arrays_convert_to_looser_layouts_only(graph: Definition) -> None:
    matrix = graph.device_array("m", (4, 6), np.float32)
    assert type_of(matrix, signature="(float32[:, :],)") == types.float32[:, :]
    for misfit in ("(float32[::1, :],)", "(float64[:, ::1],)", "(float32[:],)", "(float32,)"):
        with pytest.raises(CompileError, match="does not convert"):
            type_of(matrix, signature=misfit)


def test_readonly_memory_is_not_passed_where_it_may_be_written(graph: Definition) -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(CompileError, match="readonly array"):
        type_of(graph.external("f", frozen), signature=(types.float64[::1],))
    ready = types.Array(types.float64, 1, "C", readonly=True)
    assert type_of(graph.device_array("x", 3, np.float64), signature=(ready,)) == ready


def test_of_several_signatures_an_exact_one_comes_before_a_conversion(graph: Definition) -> None:
    kernel = Kernel(one, ((types.float64,), (types.int64,), (types.int8,)))
    assert argument_types(kernel, (graph.param("l", np.int64),)) == (types.int64,)
    assert argument_types(kernel, (graph.param("i", np.int32),)) == (types.float64,)
    assert argument_types(kernel, (5,)) == (types.int64,)
    with pytest.raises(CompileError, match="argument 'value'"):
        argument_types(kernel, (graph.param("c", np.complex64),))


def test_of_several_signatures_the_message_is_about_the_nearest(graph: Definition) -> None:
    x, n = graph.device_array("x", 4, np.float32), graph.param("n", np.int64)
    declared = (
        (types.float64[:], types.float64[:], types.float64, types.int64),
        (types.float32[:], types.float32[:], types.float32, types.int32),
    )
    with pytest.raises(CompileError, match="declares int32, and int64") as caught:
        argument_types(Kernel(scale, declared), (x, x, 1.0, n), node="first", location=("file.py", 7))
    error = caught.value
    assert (error.node, error.field, error.value, error.location) == ("first", "argument 'n'", "n", ("file.py", 7))
    assert error.remedy


def test_a_node_signature_comes_before_those_of_the_decorator() -> None:
    kernel = Kernel(one, ((types.int64,),))
    assert argument_types(kernel, (5,), signature=(types.int8,)) == (types.int8,)


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("float32(float32)", "a kernel returns void"),
        ("float32", "cannot read it"),
        ("void(nonsense)", "nonsense"),
        ("void(int32, int32)", "takes 1 arguments, not 2"),
        ((3,), "cannot read it"),
        ([types.int32], "cannot read it"),
        (types.void(types.int32), None),
    ],
)
def test_signatures_that_cannot_be_used_are_refused(signature: Any, why: str | None) -> None:
    if why is None:
        assert type_of(3, signature=signature) == types.int32
        return
    with pytest.raises(CompileError, match=why) as caught:
        type_of(3, signature=signature)
    assert caught.value.field == "signature"
    assert caught.value.remedy


# Refusals


def test_missing_and_surplus_arguments_are_named(graph: Definition) -> None:
    x = graph.device_array("x", 4, np.float32)
    with pytest.raises(
        CompileError, match=r"args = missing gain, n: scale\(x, y, gain, n\) takes 4 arguments, 2 given"
    ):
        argument_types(as_kernel(scale), (x, x), node="s")
    with pytest.raises(CompileError, match="surplus 7"):
        argument_types(as_kernel(one), (x, 7))


class Foreign:
    __cuda_array_interface__ = None


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros(3, PARTICLE)[0], Foreign(), (1, np.zeros(3))])
def test_memory_that_is_no_operand_is_refused_with_the_way_out(value: Any) -> None:
    with pytest.raises(CompileError, match=r"argument 'value'.*graph\.external\(name, \.\.\.\)"):
        type_of(value)


@pytest.mark.parametrize("value", [None, "text", [1], {1: 2}, {1}, len, object(), slice(3), np.str_("a")])
def test_what_no_kernel_takes_is_refused(value: Any) -> None:
    with pytest.raises(CompileError, match=r"argument 'value'.*a kernel takes arrays") as caught:
        type_of(value, node="n")
    assert caught.value.node == "n"
    assert caught.value.remedy


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, (1, 2**64)], ids=str)
def test_integers_that_no_parameter_holds(value: Any) -> None:
    with pytest.raises(CompileError, match=r"argument 'value'.*integers from -2\*\*63 to 2\*\*64 - 1"):
        type_of(value)
    assert type_of(2**64 - 1) == types.uint64
    assert type_of(-(2**63)) == types.int64


def test_an_integer_that_would_fill_pages_is_told_by_its_size() -> None:
    with pytest.raises(CompileError, match="an integer of 16610 bits"):
        type_of(10**5000)
    with pytest.raises(CompileError, match="an integer of 16610 bits"):
        type_of(10**5000, signature="void(int64)")


@pytest.mark.parametrize("owner", [bytearray(8), memoryview(b"text"), b"text"])
def test_memory_with_the_buffer_protocol_is_no_argument(owner: Any) -> None:
    with pytest.raises(CompileError, match="through operands of the graph only"):
        type_of(owner)
