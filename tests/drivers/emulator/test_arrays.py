from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.drivers.emulator.arrays import Array, Record, array_at, array_in, mirror, pointer_at
from graphdsl.drivers.emulator.memory import AddressSpace, Region, fresh
from graphdsl.drivers.emulator.problems import NEVER_WRITTEN, OUTSIDE, OUTSIDE_ARRAY, RELEASED, AccessError

RECORD = np.dtype([("a", np.int8), ("b", np.float64), ("c", np.float32, (3,))], align=True)


def written(values: Any) -> Array:
    """An array over a copy of NumPy's, all written."""
    values = np.ascontiguousarray(values)
    data = np.frombuffer(bytearray(values.tobytes()), np.uint8)
    found: Array = array_in(Region("device", 0x1000, data), "x", values.dtype, values.shape)
    return found


def unwritten(shape: Any, dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    region = fresh("device", int(np.prod(shape)) * dtype.itemsize, 0x1000)
    return array_in(region, "x", dtype, shape)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i8", "u8", "?"])
def test_elements_keep_their_type(dtype: str) -> None:
    assert type(written(np.ones(2, dtype))[1]) is np.dtype(dtype).type


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4"])
def test_narrow_integers_are_read_as_numba_types_them(dtype: str) -> None:
    array = written(np.array([200 if dtype == "u1" else 100], dtype))
    assert type(array[0]) is np.int64
    assert array[0] + array[0] in (200, 400)


def test_indices_wrap_around_as_numba_compiles_them() -> None:
    array = written(np.arange(5.0))
    assert (array[-1], array[-5], array[np.int32(2)], array[np.uint64(3)]) == (4, 0, 2, 3)
    grid = written(np.arange(6.0).reshape(2, 3))
    assert (grid[1, 2], grid[-1, -3], grid[0][1]) == (5, 3, 1)


@pytest.mark.parametrize("key", [5, -6, 10**9])
def test_indices_outside_of_the_shape(key: int) -> None:
    array = written(np.arange(5.0))
    with pytest.raises(AccessError, match=rf"x\[{key}\], read in an array of shape \(5,\)") as read:
        array[key]
    with pytest.raises(AccessError, match="write") as write:
        array[key] = 0
    for caught in (read, write):
        assert caught.value.kind == OUTSIDE_ARRAY
        assert (caught.value.details["argument"], caught.value.details["index"]) == ("x", key)
    assert read.value.details["offset"] == 8 * key


def test_indices_outside_of_a_part_though_inside_of_the_array() -> None:
    part = written(np.arange(10.0))[2:5]
    with pytest.raises(AccessError, match=r"x\[2:5\]\[3\]"):
        part[3]
    grid = written(np.arange(6.0).reshape(2, 3))
    with pytest.raises(AccessError, match=r"x\[0, 3\]"):
        grid[0, 3]


def test_keys_that_kernels_cannot_use() -> None:
    array = written(np.arange(4.0))
    for key in (1.5, (0, 0), "b"):
        with pytest.raises((TypeError, IndexError)):
            array[key]
    for key in ([0, 1], np.array([True] * 4), True):
        with pytest.raises(TypeError, match="integers and slices"):
            array[key]


def test_reading_what_was_never_written() -> None:
    array = unwritten(4, np.float32)
    array[1] = 2.5
    assert array[1] == 2.5
    with pytest.raises(AccessError) as caught:
        array[-2]
    assert caught.value.kind == NEVER_WRITTEN
    assert caught.value.details["offset"] == 8
    assert "x[-2]" in str(caught.value)


@pytest.mark.parametrize("dtype", ["i1", "f2", "i4", "f8", "c8", "c16", "?", "M8[s]"])
def test_every_dtype_remembers_what_was_written(dtype: str) -> None:
    array = unwritten((2, 2), dtype)
    array[0, 1] = np.zeros(1, dtype)[0]
    assert array[0, 1] == np.zeros(1, dtype)[0]
    with pytest.raises(AccessError):
        array[1, 0]


def test_slices_are_written_as_a_whole() -> None:
    array = unwritten(6, np.int32)
    array[1:5:2] = 7
    assert (array[1], array[3]) == (7, 7)
    with pytest.raises(AccessError):
        array[2]
    array[4:] = array[1:4:2]
    assert array[5] == 7
    with pytest.raises(AccessError, match=r"x\[0:2\]"):
        array[4:] = array[0:2]


@pytest.mark.parametrize(
    ("dtype", "value", "kept"),
    [
        ("i4", 3.99, 3),
        ("i4", -3.99, -3),
        ("u1", 300, 44),
        ("u1", -1, 255),
        ("i4", 2**31, -(2**31)),
        ("i4", np.int64(2**32 + 5), 5),
        ("u8", -1, 2**64 - 1),
        ("i8", 2**64 - 1, -1),
        ("f4", 1 / 3, np.float32(1 / 3)),
        ("?", 2, True),
        ("u1", np.float64(200.5), 200),
    ],
)
def test_values_are_converted_as_c_converts_them(dtype: str, value: Any, kept: Any) -> None:
    array = unwritten(1, dtype)
    array[0] = value
    assert array[0] == kept


def test_attributes() -> None:
    array = written(np.arange(6, dtype=np.int16).reshape(2, 3))
    assert (array.shape, array.strides, array.ndim, array.size) == ((2, 3), (6, 2), 2, 6)
    assert (array.itemsize, array.nbytes, array.dtype, len(array)) == (2, 12, np.int16, 2)
    assert [list(row) for row in array] == [[0, 1, 2], [3, 4, 5]]
    assert array.T[2, 1] == array.transpose(1, 0)[2, 1] == 5
    assert array.reshape(3, 2)[2, 0] == array.reshape((6,))[4] == array.ravel()[4] == 4
    assert array.view(np.uint8).shape == (2, 6)
    with pytest.raises(TypeError, match="C contiguous"):
        array.T.reshape(6)
    with pytest.raises(TypeError, match="C contiguous"):
        array[:, ::2].ravel()
    with pytest.raises(AttributeError, match="'sum'"):
        array.sum()
    with pytest.raises(TypeError):
        np.sum(array)
    with pytest.raises(TypeError):
        array + 1


def test_parts_share_memory_and_its_record() -> None:
    array = unwritten((4, 4), np.float32)
    array.T[1][2] = 5
    assert array[2, 1] == 5
    array.view(np.uint32)[0, 0] = 0x3F800000
    assert array[0, 0] == 1
    with pytest.raises(AccessError):
        array[1, 2]


def test_complex_parts() -> None:
    array = unwritten(2, np.complex64)
    array.real[0] = 1
    with pytest.raises(AccessError):
        array[0]
    array.imag[0] = 2
    assert array[0] == 1 + 2j
    assert written(np.ones(2)).real[1] == 1


def test_records() -> None:
    array = unwritten(3, RECORD)
    array[1].b = 2.5
    assert array[1]["b"] == array[1].b == array.b[1] == array["b"][1] == 2.5
    with pytest.raises(AccessError, match=r"x\[1\].a"):
        array[1]["a"]
    record = array[1]
    record["a"] = 300
    record.c[2] = 4
    assert (record.a, record[0], record.c[2]) == (44, 44, 4)
    with pytest.raises(AccessError, match=r"x\[1\].c\[1\]"):
        record.c[1]
    with pytest.raises(AccessError, match=r"x\[1\].c\[3\]"):
        record.c[3] = 0
    with pytest.raises(AttributeError, match="a, b, c"):
        getattr(record, "d")  # noqa: B009
    with pytest.raises(AttributeError, match="a, b, c"):
        record.d = 1


def test_records_are_references_and_copied_whole() -> None:
    values = np.zeros(2, RECORD)
    values[0] = (1, 2, [3, 4, 5])
    source = written(values)
    target = unwritten(2, RECORD)
    target[1] = source[0]
    assert (target[1].a, target[1].b, target[1].c[2]) == (1, 2, 5)
    assert isinstance(target[0], Record)
    with pytest.raises(AccessError):
        target[1] = target[0]
    alias = target[1]
    alias.b = 9
    assert target[1].b == 9


def test_a_record_written_field_by_field_is_written() -> None:
    """The padding between fields is nobody's to write."""
    space = AddressSpace(2**12)
    region = space.allocate(2 * RECORD.itemsize)
    array = array_at(space, region.base, (2,), (RECORD.itemsize,), RECORD, "x")
    for record in array:
        record.a = 1
        record.b = 2
        record.c[0] = record.c[1] = record.c[2] = 3
    assert len(space.reading(region.base, 2 * RECORD.itemsize)) == 2 * RECORD.itemsize


def test_a_record_passed_by_address() -> None:
    space = AddressSpace(2**12)
    region = space.allocate(RECORD.itemsize)
    record = array_at(space, region.base, (), (), RECORD, "r")
    record.b = 1
    assert isinstance(record, Record)
    assert record.b == 1
    with pytest.raises(AccessError, match=r"r\.a"):
        record["a"]


def test_arrays_bound_to_memory() -> None:
    space = AddressSpace(2**12)
    region = space.allocate(64)
    whole = array_at(space, region.base, (16,), (4,), np.dtype(np.float32), "x")
    whole[15] = 1
    backwards = array_at(space, region.base + 60, (16,), (-4,), np.dtype(np.float32), "x")
    assert backwards[0] == 1
    with pytest.raises(AccessError) as outside:
        array_at(space, region.base + 4, (16,), (4,), np.dtype(np.float32), "x")
    assert outside.value.kind == OUTSIDE
    empty = array_at(space, 0, (0, 3), (12, 4), np.dtype(np.float32), "x")
    assert (len(empty), empty.shape) == (0, (0, 3))
    with pytest.raises(AccessError):
        empty[0, 0]
    space.release(region.base, "device")
    with pytest.raises(AccessError) as released:
        array_at(space, region.base, (1,), (4,), np.dtype(np.float32), "x")
    assert released.value.kind == RELEASED


def test_an_array_that_is_written_whole_is_not_watched_any_more() -> None:
    space = AddressSpace(2**12)
    region = space.allocate(12)
    first = array_at(space, region.base, (2,), (4,), np.dtype(np.float32), "x")
    first[:] = 1
    again = array_at(space, region.base, (2,), (4,), np.dtype(np.float32), "x")
    longer = array_at(space, region.base, (3,), (4,), np.dtype(np.float32), "x")
    assert again._written is None
    assert longer[1] == 1
    with pytest.raises(AccessError):
        longer[2]


@pytest.mark.parametrize("dtype", ["u2", "f4", "f8", "c8", "c16", "i8"])
def test_an_element_with_a_byte_that_nobody_wrote_is_not_written(dtype: str) -> None:
    """Whichever byte it is: what is known of bytes is compared as numbers."""
    space = AddressSpace(2**12)
    size = np.dtype(dtype).itemsize
    for hole in range(size):
        region = space.allocate(size)
        for place in {*range(size)} - {hole}:
            space.writing(region.base + place, 1)[:] = 0
        element = array_at(space, region.base, (1,), (size,), np.dtype(dtype), "x")
        with pytest.raises(AccessError):
            element[0]
        space.writing(region.base + hole, 1)[:] = 0
        assert element[0] == 0


def test_a_field_of_all_records_is_written_at_once() -> None:
    array = unwritten(2, RECORD)
    array["c"] = 7
    assert (array[0].c[1], array[1].c[2]) == (7, 7)
    with pytest.raises(AccessError):
        array[0]["b"]


def test_dtypes_that_have_no_place_in_a_kernel() -> None:
    with pytest.raises(TypeError, match="cannot be emulated"):
        mirror(np.dtype("U4"))


KEYS = st.one_of(
    st.integers(-6, 6),
    st.slices(5),
    st.just(Ellipsis),
    st.tuples(st.one_of(st.integers(-6, 6), st.slices(4)), st.one_of(st.integers(-6, 6), st.slices(5))),
)


@given(KEYS, KEYS)
def test_parts_are_those_of_numpy(first: Any, second: Any) -> None:
    model = np.arange(20.0).reshape(4, 5)
    array = written(model)
    try:
        wanted = model[first][second]
    except IndexError:
        with pytest.raises((AccessError, TypeError, IndexError)):
            array[first][second]
        return
    found = array[first][second]
    if isinstance(found, Array):
        assert found.shape == wanted.shape
        assert [found[index] for index in np.ndindex(found.shape)] == wanted.ravel().tolist()
    else:
        assert found == wanted


# Addresses in C++


def test_an_address_leads_to_the_end_of_its_allocation() -> None:
    space = AddressSpace(2**20)
    region = space.allocate(44)
    pointer = pointer_at(space, region.base + 8, np.dtype(np.float64), "x")
    assert pointer.shape == (4,)
    pointer[3] = 2.5
    assert region.data[32:40].view(np.float64)[0] == 2.5
    assert pointer[np.int64(3)] == 2.5
    for key in (4, -1, np.int32(-1)):
        with pytest.raises(AccessError, match="read in an array of shape") as caught:
            pointer[key]
        assert caught.value.kind == OUTSIDE_ARRAY
        with pytest.raises(AccessError, match="write"):
            pointer[key] = 1
    with pytest.raises(AccessError, match=r"x\[1\]") as caught:
        pointer[1]
    assert caught.value.kind == NEVER_WRITTEN


def test_an_address_that_nobody_follows_may_lead_anywhere() -> None:
    space = AddressSpace(2**20)
    region = space.allocate(64)
    for address in (0, region.base + 64, 12345):
        pointer = pointer_at(space, address, np.dtype(np.int32), "x")
        with pytest.raises(AccessError, match=r"x\[0\]"):
            pointer[0]
    space.release(region.base, "device")
    with pytest.raises(AccessError) as caught:
        pointer_at(space, region.base, np.dtype(np.int32), "x")
    assert caught.value.kind == RELEASED
