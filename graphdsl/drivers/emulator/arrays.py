"""Arrays and records as kernels see them in the emulator: every access is checked.

They behave like Numba's arrays in CUDA kernels, on top of two NumPy views: one of the bytes, and one that tells which
of them were written. An index outside of the shape is an error here, though a GPU computes the address and
touches whatever lies there. This module must not know threads or nodes.

An element that is an integer of fewer than 64 bits is read as `numpy.int64`, because Numba's typing widens it before
any operation: ``uint8`` pixels 200 and 100 add up to 300 on a GPU, and would to 44 as NumPy scalars.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import EllipsisType
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.np import numpy_support

from graphdsl.declare.operands import key_text
from graphdsl.drivers.emulator.memory import Flags, Reach, Region
from graphdsl.drivers.emulator.problems import MISALIGNED, NEVER_WRITTEN, OUTSIDE, OUTSIDE_ARRAY, AccessError

_INDEX_TYPES = (int, np.integer, slice, EllipsisType, type(None))
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def mirror(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of the same layout for the record of written bytes, in which `_complete` elements can be told.

    Examples
    --------
    >>> mirror(np.dtype(np.float32))
    dtype('uint32')
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((mirror(base), shape))
    if dtype.names is not None:
        fields = [dtype.fields[name][:2] for name in dtype.names]  # type: ignore[index]
        formats = [mirror(field) for field, _ in fields]
        offsets = [offset for _, offset in fields]
        return np.dtype({"names": dtype.names, "formats": formats, "offsets": offsets, "itemsize": dtype.itemsize})
    if dtype.kind == "c":
        return dtype  # two floats; those whose bytes are zeros and ones are numbers, different ones
    if dtype.kind not in "biufmM" or dtype.itemsize not in _UNSIGNED:
        raise TypeError(f"elements of type {dtype} cannot be emulated")
    return _UNSIGNED[dtype.itemsize]


@functools.cache
def _complete(dtype: np.dtype[Any]) -> Any:
    """The element of a `mirror` dtype that stands for one of which every byte was written."""
    return np.ones(dtype.itemsize, np.bool_).view(dtype)[0]


def widen(value: Any) -> Any:
    """An integer of fewer than 64 bits as `numpy.int64`, all else as it is."""
    return np.int64(value) if isinstance(value, np.integer) and value.dtype.itemsize < 8 else value


def convert(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number as a dtype holds it, by C's conversion: integers wrap; a float out of range gives no defined integer."""
    if isinstance(value, int):
        value = np.uint64(value & 0xFFFF_FFFF_FFFF_FFFF)
    return np.asarray(value).astype(dtype, casting="unsafe")


class Array:
    """An array in a kernel.

    Parameters
    ----------
    values : numpy.ndarray
        View of the memory.
    written : numpy.ndarray or None
        View of the same elements in the region's record of written bytes, in the `mirror` of the dtype; None if all
        are written.
    region : Region
        Where they lie.
    label : str or tuple
        Name of the kernel's argument; for a part of an array, the label of that array and the key.
    """

    __slots__ = ("_complete", "_label", "_region", "_scalar", "_values", "_widen", "_written")
    __array_ufunc__ = None  # NumPy's functions of whole arrays do not exist on a device

    def __init__(self, values: Any, written: Any, region: Region, label: Any) -> None:
        dtype = values.dtype
        self._values = values
        self._written = written
        self._complete: Any = None if written is None else _complete(written.dtype)
        self._region = region
        self._label = label
        self._scalar = None if dtype.names else dtype.type
        self._widen = dtype.kind in "iu" and dtype.itemsize < 8

    # Elements

    def __getitem__(self, key: Any) -> Any:
        try:
            value = self._values[key]
        except IndexError as cause:
            raise self._outside(key, "read") from cause
        if value.__class__ is not self._scalar:
            return self._part(key)
        if self._written is not None and self._written[key] != self._complete:
            raise self._never_written(key)
        return np.int64(value) if self._widen else value

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            self._values[key] = value
        except IndexError as cause:
            raise self._outside(key, "write") from cause
        except (OverflowError, TypeError, ValueError):
            self._values[key] = (
                contents(value) if isinstance(value, (Array, Record)) else convert(value, self._values.dtype)
            )
        if self._written is not None:
            self._written[key] = self._complete[key] if isinstance(key, str) else self._complete

    def _part(self, key: Any) -> Any:
        """A sub-array, a field of all records, or one record."""
        if isinstance(key, str):
            return self._derived(lambda view: view[key], key)
        keys = key if isinstance(key, tuple) else (key,)
        for item in keys:
            if not isinstance(item, _INDEX_TYPES) or isinstance(item, bool):
                raise TypeError(f"a kernel indexes arrays with integers and slices, not with {type(item).__name__}")
        if Ellipsis not in keys:
            keys = (*keys, Ellipsis)  # keeps one record a view, where NumPy would give a scalar
        return self._derived(lambda view: view[keys], key)

    def _derived(self, view_of: Any, key: Any) -> Any:
        written = None if self._written is None else view_of(self._written)
        return element(view_of(self._values), written, self._region, (self._label, key))

    def place_of_vector(self, index: Any, nbytes: int) -> int:
        """The index of an element from which one instruction touches so many bytes; it counts from no end."""
        place = int(index)
        address = self._address() + place * self.itemsize
        what = f", {nbytes} bytes at once in an array of shape {self.shape}"
        if not 0 <= place <= self.size - nbytes // self.itemsize:
            raise self._error(OUTSIDE_ARRAY, place, what, address)
        if address % nbytes or (not self._region.base and self._region.alignment % nbytes):
            raise self._error(MISALIGNED, place, what, address)
        return place

    # What is wrong with an access

    def _outside(self, key: Any, action: str) -> Exception:
        keys = key if isinstance(key, tuple) else (key,)
        strays = not all(isinstance(item, _INDEX_TYPES) for item in keys)
        if strays or sum(item is not None and item is not Ellipsis for item in keys) > self.ndim:
            return TypeError(
                f"{text_of(self._label)} has {self.ndim} dimensions and cannot be indexed by {key_text(key)}"
            )
        address = None
        if all(isinstance(item, (int, np.integer)) for item in keys):
            address = self._address() + sum(int(index) * stride for index, stride in zip(keys, self.strides))
        return self._error(OUTSIDE_ARRAY, key, f", {action} in an array of shape {self.shape}", address)

    def _never_written(self, key: Any) -> AccessError:
        keys = key if isinstance(key, tuple) else (key,)
        wrapped = [index + extent if index < 0 else index for index, extent in zip(keys, self.shape)]
        address = self._address() + sum(int(index) * stride for index, stride in zip(wrapped, self.strides))
        return self._error(NEVER_WRITTEN, key, f" of an array of shape {self.shape}", address)

    def _address(self) -> int:
        """Address of the first element: 0 and up in memory that has none."""
        return self._region.base + int(self._values.ctypes.data) - int(self._region.data.ctypes.data)

    def _error(self, kind: str, key: Any, what: str, address: int | None) -> AccessError:
        label = text_of(self._label)
        text = f"{label}[{key_text(key)}]{what}"
        details: dict[str, Any] = {"argument": root_of(self._label), "index": key, "nbytes": self.itemsize}
        if self._region.base:
            details["allocation"] = (self._region.base, self._region.nbytes)
            if address is not None:
                details["address"] = address
                details["offset"] = address - self._region.base
                text += f", at offset {details['offset']} of {self._region}"
        return AccessError(kind, text, **details)

    # What Numba's arrays have

    @property
    def shape(self) -> tuple[int, ...]:
        return self._values.shape  # type: ignore[no-any-return]

    @property
    def strides(self) -> tuple[int, ...]:
        return self._values.strides  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return self._values.ndim  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        return self._values.size  # type: ignore[no-any-return]

    @property
    def itemsize(self) -> int:
        return self._values.itemsize  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        return self._values.nbytes  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._values.dtype  # type: ignore[no-any-return]

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def real(self) -> Any:
        return self._derived(lambda view: view.real, "real") if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Any:
        return self._derived(lambda view: view.imag, "imag")

    def transpose(self, *axes: Any) -> Any:
        """The same elements with the axes permuted."""
        return self._derived(lambda view: view.transpose(*axes), "transpose")

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape; the array must be C contiguous, as Numba demands."""
        self._require_contiguous("reshape")
        return self._derived(lambda view: view.reshape(*shape), "reshape")

    def ravel(self) -> Any:
        """The same elements in one dimension; the array must be C contiguous, as Numba demands."""
        self._require_contiguous("ravel")
        return self._derived(lambda view: view.reshape(-1), "ravel")

    def view(self, dtype: Any) -> Any:
        """The same bytes as elements of another type."""
        wanted = as_dtype(dtype)
        written = None if self._written is None else self._written.view(mirror(wanted))
        return element(self._values.view(wanted), written, self._region, (self._label, "view"))

    def _require_contiguous(self, what: str) -> None:
        if not self._values.flags.c_contiguous:
            raise TypeError(f"{what}() of {text_of(self._label)}: a kernel can do this with C contiguous arrays only")

    def __getattr__(self, name: str) -> Any:
        if name in (self._values.dtype.names or ()):
            return self[name]
        raise AttributeError(f"{text_of(self._label)}: arrays in kernels have no attribute {name!r}")

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self._values)))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{text_of(self._label)}: NumPy functions of whole arrays do not exist in kernels")

    def __repr__(self) -> str:
        return f"<{text_of(self._label)}: {self.dtype}{list(self.shape)}>"


class Pointer(Array):
    """What an address in C++ leads to: the elements from there to the end of the allocation; none before them."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        self._require_forward(key, "read")
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._require_forward(key, "write")
        super().__setitem__(key, value)

    def _require_forward(self, key: Any, action: str) -> None:
        if isinstance(key, (int, np.integer)) and key < 0:  # Python would count from the end
            raise self._outside(key, action)


class Record:
    """One record in a kernel: a reference into memory, as on a device. Fields are attributes and items."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        object.__setattr__(self, "_array", array)

    def __getitem__(self, name: Any) -> Any:
        array = self._array
        name = array.dtype.names[name] if isinstance(name, (int, np.integer)) else name
        return array._derived(lambda view: view[name], name)

    def __setitem__(self, name: Any, value: Any) -> None:
        array = self._array
        name = array.dtype.names[name] if isinstance(name, (int, np.integer)) else name
        written = None if array._written is None else array._written[name]
        Array(array._values[name], written, array._region, (array._label, name))[...] = value

    def __getattr__(self, name: str) -> Any:
        if name not in self._array.dtype.names:
            raise AttributeError(
                f"{text_of(self._array._label)} has the fields {', '.join(self._array.dtype.names)}, not {name!r}"
            )
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._array.dtype.names:
            raise AttributeError(
                f"{text_of(self._array._label)} has the fields {', '.join(self._array.dtype.names)}, not {name!r}"
            )
        self[name] = value

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{text_of(self._array._label)} is a record, not a number")

    def __repr__(self) -> str:
        return f"<{text_of(self._array._label)}: {self._array.dtype}>"


def element(values: Any, written: Any, region: Region, label: Any) -> Any:
    """What a view stands for in a kernel: an array, a record, or a number if it has no dimensions."""
    array = Array(values, written, region, label)
    if values.ndim:
        return array
    return Record(array) if values.dtype.names else array[()]


def contents(source: Array | Record) -> Any:
    """The values of an array or record, all of which must have been written."""
    array = source if isinstance(source, Array) else source._array
    if array._written is not None:
        missing = np.argwhere(array._written != array._complete)
        if len(missing):
            raise array._never_written(tuple(missing[0].tolist()))
    return array._values


@functools.cache
def as_dtype(numba_type: Any) -> np.dtype[Any]:
    """The NumPy dtype of a Numba type, or of what NumPy takes for one."""
    found: np.dtype[Any] = np.dtype(
        numpy_support.as_dtype(numba_type) if isinstance(numba_type, types.Type) else numba_type
    )
    return found


def array_at(
    space: Reach,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    label: str,
) -> Any:
    """The array, or the record if there are no dimensions, that a kernel is given by address.

    Raises
    ------
    AccessError
        If its elements do not all lie in one live allocation.
    """
    if 0 in shape:
        return Array(np.empty(shape, dtype), None, Region("constant", 0, np.empty(0, np.uint8)), label)
    spans = [stride * (extent - 1) for stride, extent in zip(strides, shape)]
    low = sum(span for span in spans if span < 0)
    high = sum(span for span in spans if span > 0) + dtype.itemsize
    region, start = space.locate(address + low, high - low)
    written = region.written
    if written is not None and written[start : start + high - low].all():
        written = None
    elif written is not None:
        _accept_padding(written, start - low, shape, strides, dtype)
    return _view(region, written, label, dtype, shape, start - low, strides)


def pointer_at(space: Reach, address: int, dtype: np.dtype[Any], label: str) -> Pointer:
    """The elements from an address to the end of its allocation; none for an address that leads nowhere.

    Raises
    ------
    AccessError
        If it leads to memory that the kernel may not touch, released for one.
    """
    try:
        region, start = space.locate(address, 1)
    except AccessError as problem:
        if problem.kind != OUTSIDE:
            raise
        # Null, or the end of an allocation: an address may lead there, as long as nobody follows it.
        return Pointer(np.empty(0, dtype), None, Region("constant", 0, np.empty(0, np.uint8)), label)
    count = (region.nbytes - start) // dtype.itemsize
    array = array_at(space, address, (count,), (dtype.itemsize,), dtype, label)
    return Pointer(array._values, array._written, region, label)


def array_in(region: Region, label: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """The array, or the record if there are no dimensions, at the start of a region; C contiguous."""
    return _view(region, region.written, label, dtype, shape)


def _view(
    region: Region,
    written: Flags | None,
    label: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Any:
    values = np.ndarray(shape, dtype, region.data, offset, strides)
    record = None if written is None else np.ndarray(shape, mirror(dtype), written, offset, strides)
    array = Array(values, record, region, label)
    return Record(array) if dtype.names and not shape else array


def _accept_padding(
    written: Flags, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """Count the padding of records as written: a kernel that writes every field has written the record."""
    padding = np.ones(dtype.itemsize, bool)
    for start, field in _leaves(dtype, 0):
        padding[start : start + field.itemsize] = False
    if padding.any():
        record = np.ndarray((*shape, dtype.itemsize), np.bool_, written, offset, (*strides, 1))
        record[..., padding] = True


def _leaves(dtype: np.dtype[Any], start: int) -> Iterator[tuple[int, np.dtype[Any]]]:
    """Offset and dtype of everything in a dtype that is no record."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        for index in range(int(np.prod(shape))):
            yield from _leaves(base, start + index * base.itemsize)
    elif dtype.names is None:
        yield start, dtype
    else:
        for name in dtype.names:
            field, offset = dtype.fields[name][:2]  # type: ignore[index]
            yield from _leaves(field, start + offset)


def text_of(label: Any) -> str:
    """``x[2:5]`` or ``x[3].field`` from a label."""
    if isinstance(label, str):
        return label
    parent, key = label
    return f"{text_of(parent)}.{key}" if isinstance(key, str) else f"{text_of(parent)}[{key_text(key)}]"


def root_of(label: Any) -> str:
    """``x`` from the label of ``x[2:5]``."""
    while not isinstance(label, str):
        label = label[0]
    return label
