"""Device memory in the user's hands: copied to and from, and given to other libraries without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphdsl.declare.given import checked_dtype, checked_shape
from graphdsl.declare.operands import contiguous_strides, layout_of
from graphdsl.errors import DeclarationError, GraphdslError
from graphdsl.run.blocks import DeviceBlock, freed_with
from graphdsl.run.copies import Side, copy_rows
from graphdsl.run.faults import told

if TYPE_CHECKING:
    from typing_extensions import Self

    from graphdsl.drivers.base import Driver

Entering = Callable[[bool], None]
"""Is called before a copy, with True if it writes: it may refuse."""


class DeviceArray:
    """An array in the memory of a device, CUDA or emulated.

    `GraphExec` gives one for each device array by name; `device_array` and `to_device` make new ones that an
    operand can adopt (`Graph.external`) or an update re-bind.

    Attributes
    ----------
    device : Driver
        Where the memory lives.
    address : int
        Of the first element, on that device.
    shape : tuple of int
        Extents in elements.
    strides : tuple of int
        Bytes between neighbours.
    dtype : numpy.dtype
        Type of an element.
    readonly : bool
        True if its owner lets nobody write to it.
    """

    def __init__(
        self,
        device: Driver,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        owner: Any,
        synchronize: Callable[[], int],
        entering: Entering | None = None,
        readonly: bool = False,
    ) -> None:
        self.device = device
        self.address = address
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self._owner = owner
        self._synchronize = synchronize
        self._entering = entering
        self.readonly = readonly

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def view(self, shape: int | tuple[int, ...], dtype: Any, *, offset: int = 0) -> DeviceArray:
        """A part of the memory as an array of its own, which keeps the memory alive.

        Parameters
        ----------
        shape : int or tuple of int
            Extents in elements; the part is in C order.
        dtype : dtype
            Type of an element.
        offset : int
            Bytes from the start of this array to that of the part; a multiple of the alignment of the dtype.

        Raises
        ------
        DeclarationError
            If this array has gaps, or the part does not lie within it.

        Examples
        --------
        >>> import graphdsl as gd
        >>> arena = gd.to_device(gd.emulator(), np.arange(8, dtype=np.float32))
        >>> arena.view((2, 2), np.float32, offset=16).copy_to_host()
        array([[4., 5.],
               [6., 7.]], dtype=float32)
        """
        extents, made = checked_shape(shape, "view"), checked_dtype(dtype, "view")
        nbytes = int(np.prod(extents, dtype=np.int64)) * made.itemsize
        given: dict[str, Any] = {"field": "offset", "value": offset}
        if not self._is_contiguous():
            raise DeclarationError("a view is of memory without gaps", value=repr(self), remedy="View its owner.")
        if not isinstance(offset, (int, np.integer)) or offset < 0 or offset % made.alignment:
            raise DeclarationError(
                f"a view of {made} begins at a multiple of {made.alignment} bytes", **given, remedy="Round it up."
            )
        if offset + nbytes > self.nbytes:
            raise DeclarationError(
                f"a view of {nbytes} bytes from there on reaches beyond the {self.nbytes} bytes of the array",
                **given,
                remedy="Choose a smaller shape or offset.",
            )
        return DeviceArray(
            self.device,
            self.address + int(offset),
            extents,
            contiguous_strides(extents, made.itemsize),
            made,
            owner=self,
            synchronize=self._synchronize,
            entering=self._entering,
            readonly=self.readonly,
        )

    def copy_to_host(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Wait for the launches so far and copy to the host.

        Parameters
        ----------
        out : numpy.ndarray, optional
            C contiguous array of the same shape and dtype to copy into; a new one by default.

        Returns
        -------
        numpy.ndarray
            ``out``, or a new array.

        Raises
        ------
        GraphdslError
            If ``out`` does not match.
        DriverError
            If a launch or the copy failed.
        """
        out = np.empty(self.shape, self.dtype) if out is None else out
        self._require_match(out, "out", "destination")
        stream = self._synchronize()
        if not self.nbytes:
            return out
        self._enter(False)
        with told(self.device):
            if self._is_contiguous():
                self.device.memcpy_dtoh(out, self.address, stream)
            else:
                copy_rows(self.device, _host_side(out), self._side, stream)
        return out

    def copy_from_host(self, array: Any) -> None:
        """Wait for the launches so far and copy from the host.

        Parameters
        ----------
        array : array_like
            Of the same shape; converted to the dtype where every value fits it.

        Raises
        ------
        GraphdslError
            If the shape differs, or a value does not fit the dtype.
        DriverError
            If a launch or the copy failed.
        """
        source = self._converted(array)
        self._require_match(source, "array", "source")
        stream = self._synchronize()
        if not self.nbytes:
            return
        self._enter(True)
        with told(self.device):
            if self._is_contiguous():
                self.device.memcpy_htod(self.address, source, stream)
            else:
                copy_rows(self.device, self._side, _host_side(source), stream)

    def copy_from_device(self, source: DeviceArray) -> None:
        """Wait for the launches so far, of both, and copy from memory of a device.

        Parameters
        ----------
        source : DeviceArray
            Of the same shape and dtype. The two have no bytes in common.

        Raises
        ------
        GraphdslError
            If the shape or the dtype differs.
        DriverError
            If a launch or the copy failed.
        """
        if source.shape != self.shape or source.dtype != self.dtype:
            raise GraphdslError(
                f"the source of a copy must be a {self.dtype}{list(self.shape)} array",
                field="source",
                value=f"{source.dtype}{list(source.shape)}",
                remedy="View or convert it first.",
            )
        source._synchronize()
        stream = self._synchronize()
        if not self.nbytes:
            return
        source._enter(False)
        self._enter(True)
        with told(self.device):
            copy_rows(self.device, self._side, source._side, stream)

    def _enter(self, writes: bool) -> None:
        if self._entering is not None:
            with told(self.device):
                self._entering(writes)

    def _converted(self, array: Any) -> np.ndarray[Any, Any]:
        """A host array as a C contiguous one of the dtype; as it came where that would lose values."""
        given = _host_array(array, f"Pass a {self.dtype}{list(self.shape)} array.")
        if given.dtype != self.dtype and np.can_cast(given.dtype, self.dtype, casting="same_kind"):
            with np.errstate(over="ignore", invalid="ignore"):
                cast = given.astype(self.dtype)
            exact = self.dtype.kind not in "fc"
            lost = cast != given if exact else np.isfinite(given) & ~np.isfinite(cast)
            given = given if np.any(lost) else cast
        # ascontiguousarray makes a 0-dimensional array one-dimensional.
        return np.ascontiguousarray(given).reshape(given.shape)

    def _require_match(self, array: Any, field: str, what: str) -> None:
        if (
            isinstance(array, np.ndarray)
            and array.shape == self.shape
            and array.dtype == self.dtype
            and array.flags.c_contiguous
            and (what == "source" or array.flags.writeable)
        ):
            return
        found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        raise GraphdslError(
            f"the {what} of a copy must be a C contiguous {self.dtype}{list(self.shape)} array"
            + (", writable" if what == "destination" else " whose values fit"),
            field=field,
            value=found,
            remedy="Reshape or convert it first.",
        )

    def _is_contiguous(self) -> bool:
        return layout_of(self.shape, self.strides, self.dtype.itemsize) == "C"

    def meets(self, other: DeviceArray) -> bool:
        """True if two arrays may have bytes in common."""
        (first, last), (begin, end) = self._side.span, other._side.span
        return first < end and begin < last

    @property
    def _side(self) -> Side:
        return Side(self, self.address, on_device=True)

    @classmethod
    def part_of(cls, array: DeviceArray, shape: tuple[int, ...], begin: tuple[int, ...] = ()) -> Self:
        """Some rows of another array, in its memory: the first ones, or from where a part begins."""
        return cls(
            array.device,
            array.address + sum(first * stride for first, stride in zip(begin, array.strides)),
            shape,
            array.strides,
            array.dtype,
            owner=array,
            synchronize=array._synchronize,
            entering=array._entering,
            readonly=array.readonly,
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, self.readonly),
            "strides": self.strides,
            "version": 3,
        }
        if self.dtype.fields:
            described["descr"] = self.dtype.descr
        return described

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack_device

    def __dlpack__(self, **options: Any) -> Any:
        """A DLPack capsule: the memory itself on a GPU, the emulated memory as host memory on the emulator."""
        exported = self.device.dlpack_export(self.address, self.shape, self.strides, self.dtype, self)
        return exported.__dlpack__(**options)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on {self.device.name}>"


class _Standalone(DeviceBlock):
    """Device memory with a stream of its own for copies."""

    def __init__(self, device: Driver, nbytes: int) -> None:
        super().__init__(device, nbytes)
        self.stream = device.stream_create()
        freed_with(self, device.stream_destroy, self.stream)


def device_array(device: Driver, shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
    """A new array in the memory of ``device``, its contents undefined.

    Parameters
    ----------
    device : Driver
        ``graphdsl.cuda(0)`` or ``graphdsl.emulator()``.
    shape : int or tuple of int
        Extents in elements.
    dtype : dtype
        Type of an element.

    Raises
    ------
    DeclarationError
        If the shape or the dtype is none that a device array can have.
    DriverError
        If there is no memory left.
    """
    extents = checked_shape(shape, "device_array")
    made = checked_dtype(dtype, "device_array")
    nbytes = int(np.prod(extents, dtype=np.int64)) * made.itemsize
    block = _Standalone(device, max(nbytes, 1))
    strides = contiguous_strides(extents, made.itemsize)
    return DeviceArray(device, block.address, extents, strides, made, owner=block, synchronize=lambda: block.stream)


def to_device(device: Driver, array: Any) -> DeviceArray:
    """A copy of a host array in the memory of ``device``."""
    source = _host_array(array, "Pass a NumPy array.")
    made = device_array(device, source.shape, source.dtype)
    made.copy_from_host(source)
    return made


def _host_side(array: np.ndarray[Any, Any]) -> Side:
    return Side(array, array.ctypes.data, on_device=False)


def _host_array(array: Any, remedy: str) -> np.ndarray[tuple[int, ...], Any]:
    try:
        return np.asarray(array)
    except ValueError as problem:
        raise GraphdslError(
            f"NumPy makes no array of it: {problem}",
            field="array",
            value=f"an object of type {type(array).__name__}",
            remedy=remedy,
        ) from None
