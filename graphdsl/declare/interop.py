"""Reads where foreign memory lies: `__cuda_array_interface__`, DLPack, NumPy arrays and the buffer protocol.

Nothing is copied and no CUDA library is asked. This module must not keep references: whoever asks keeps what
`ForeignArray.keep` says, for as long as the memory is used.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdsl.declare.operands import Space, contiguous_strides
from graphdsl.errors import DeclarationError


@dataclass(frozen=True)
class ForeignArray:
    """Where the elements of a foreign array lie.

    Attributes
    ----------
    address : int
        Address of the first element, on the device or the host as ``space`` says.
    shape, strides : tuple of int
        Extents in elements, strides in bytes.
    dtype : numpy.dtype
        Type of an element.
    space : "device", "pinned" or "pageable"
        Where the memory lives.
    readonly : bool
        True if the owner forbids writing.
    keep : object
        What keeps the memory where it is: the owner, or what it exported, which refers to the owner. A ``bytearray``
        may move when it grows, and refuses to while an export of it lives.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    space: Space
    readonly: bool
    keep: Any = field(repr=False, compare=False)


def foreign_array(owner: Any, name: str) -> ForeignArray:
    """Where the memory of ``owner`` lies.

    Parameters
    ----------
    owner : object
        A NumPy array, an object with ``__cuda_array_interface__`` (Numba, CuPy, PyTorch, our `DeviceArray`), with
        ``__dlpack__`` (cuda.core ``Buffer``, JAX), or with the buffer protocol (``bytearray``, ``array.array``).
    name : str
        Name of the operand, for messages.

    Raises
    ------
    DeclarationError
        If the object offers none of these, or memory that a graph cannot use.
    """
    found = _locate(owner, name)
    malformed = _malformation(found)
    if malformed:
        raise _refused(owner, name, f"it says that it has {malformed}")
    if any(stride < 0 for stride in found.strides):
        raise DeclarationError(
            "the strides of an external operand may not be negative",
            field=name,
            value=f"strides {found.strides}",
            remedy="Pass a contiguous copy of it.",
        )
    return found


def _malformation(found: ForeignArray) -> str | None:
    """What no memory has, among what an object says of its own."""
    if any(extent < 0 for extent in found.shape):
        return f"shape {found.shape}"
    if len(found.strides) != len(found.shape):
        return f"strides {found.strides} in {len(found.shape)} dimensions"
    if not 0 <= found.address < 2**64 or (found.address == 0 and 0 not in found.shape):
        return f"address {found.address:#x}"
    return None


def owns_memory(value: Any) -> bool:
    """True for what `foreign_array` is for: an object with elements in memory, and not a number."""
    if isinstance(value, np.generic):
        return False
    if any(hasattr(type(value), name) for name in ("__cuda_array_interface__", "__dlpack__")):
        return True
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _locate(owner: Any, name: str) -> ForeignArray:
    if isinstance(owner, np.ndarray):
        return _from_numpy(owner, name)
    # PyTorch raises from the property itself, for instance for tensors that require a gradient.
    try:
        interface = getattr(owner, "__cuda_array_interface__", None)
    except Exception as problem:
        interface = None
        if not hasattr(owner, "__dlpack__"):
            raise _refused(owner, name, str(problem)) from problem
    if interface is not None:
        try:
            return _from_interface(interface, owner, name)
        except DeclarationError:
            raise
        except Exception as problem:  # whatever is wrong with what somebody else wrote
            why = f"its __cuda_array_interface__ is malformed ({type(problem).__name__}: {problem})"
            raise _refused(owner, name, why) from problem
    if hasattr(owner, "__dlpack__"):
        return _from_dlpack(owner, name)
    try:
        view = np.asarray(memoryview(owner))
    except (TypeError, ValueError):
        raise _refused(
            owner, name, "it has no __cuda_array_interface__, no __dlpack__ and no buffer protocol"
        ) from None
    return _from_numpy(view, name)


def _refused(owner: Any, name: str, why: str) -> DeclarationError:
    return DeclarationError(
        f"an external operand needs memory that can be found: {why}",
        field=name,
        value=f"an object of type {type(owner).__name__}",
        remedy="Pass a NumPy array, or a device array of Numba, CuPy, PyTorch or cuda.core.",
    )


def _from_numpy(array: np.ndarray[Any, Any], name: str) -> ForeignArray:
    if isinstance(array, np.ma.MaskedArray):
        raise _refused(array, name, "it is masked")
    return ForeignArray(
        array.ctypes.data, array.shape, array.strides, array.dtype, "pageable", not array.flags.writeable, array
    )


def _from_interface(interface: dict[str, Any], owner: Any, name: str) -> ForeignArray:
    if interface.get("mask") is not None:
        raise _refused(owner, name, "it is masked")
    shape = tuple(int(extent) for extent in interface["shape"])
    # A structured dtype stands in "descr"; "typestr" then only says how many bytes it has.
    structured = interface["typestr"].startswith("|V") and "descr" in interface
    dtype = np.dtype([tuple(field) for field in interface["descr"]] if structured else interface["typestr"])
    address, readonly = interface["data"]
    strides = interface.get("strides") or contiguous_strides(shape, dtype.itemsize)
    return ForeignArray(int(address), shape, tuple(map(int, strides)), dtype, "device", bool(readonly), owner)


def device_of(owner: Any) -> int | None:
    """Number of the device that has the memory of an object, where it tells: ours do, and those that know DLPack."""
    ordinal = getattr(getattr(owner, "device", None), "ordinal", None)
    if ordinal is not None:
        return int(ordinal)
    try:
        kind, ordinal = owner.__dlpack_device__()
    except Exception:  # whatever an object of another library raises
        return None
    return int(ordinal) if kind == _DL_CUDA else None


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h: the first member of `DLManagedTensor`, whose layout is stable since version 0.2."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_DL_CUDA = 2
_DL_SPACES: dict[int, Space] = {1: "pageable", 2: "device", 3: "pinned", 13: "device"}

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _dlpack_dtype(described: _DLDataType) -> np.dtype[Any] | None:
    kind = _DL_KINDS.get(described.code)
    if kind is None or described.lanes != 1 or described.bits % 8:
        return None
    try:
        return np.dtype(f"{kind}{described.bits // 8}")
    except TypeError:
        return None


def _from_dlpack(owner: Any, name: str) -> ForeignArray:
    try:
        device_type = int(owner.__dlpack_device__()[0])
        # -1 asks the producer not to synchronise: ordering with other streams is the graph's user's to say.
        capsule = owner.__dlpack__(stream=-1) if device_type in (2, 13) else owner.__dlpack__()
        address = _capsule_pointer(capsule, b"dltensor")
    except Exception as problem:
        raise _refused(owner, name, f"its __dlpack__ failed ({type(problem).__name__}: {problem})") from problem
    tensor = _DLTensor.from_address(address)
    if device_type not in _DL_SPACES:
        raise _refused(owner, name, f"its DLPack device type {device_type} is neither CUDA nor host memory")
    dtype = _dlpack_dtype(tensor.dtype)
    if dtype is None:
        element = f"{tensor.dtype.bits} bits and {tensor.dtype.lanes} lanes"
        raise _refused(owner, name, f"NumPy has no dtype for DLPack type code {tensor.dtype.code} of {element}")
    if tensor.ndim > 0 and not tensor.shape:
        raise _refused(owner, name, f"its DLPack tensor has {tensor.ndim} dimensions and no shape")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    else:
        strides = contiguous_strides(shape, dtype.itemsize)
    data = (tensor.data or 0) + tensor.byte_offset
    # The capsule is the export: its destructor tells the producer that nobody looks at the memory any more.
    return ForeignArray(data, shape, strides, dtype, _DL_SPACES[device_type], False, (owner, capsule))


def host_bytes(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    """Host memory at an address, as a writable array of bytes that owns nothing."""
    if not nbytes:
        return np.empty(0, np.uint8)
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memory, np.uint8)


class _HostView:
    """What NumPy makes an array from: it becomes the base of the array, and keeps the owner of the memory alive."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def host_view(
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    owner: Any,
    readonly: bool = False,
) -> np.ndarray[Any, Any]:
    """Host memory at an address as an array of ``shape`` that keeps ``owner`` alive."""
    if 0 in shape:  # nothing lies there, perhaps not even memory
        return np.empty(shape, dtype)
    interface: dict[str, Any] = {"version": 3, "data": (address, readonly), "shape": shape, "strides": strides}
    interface["typestr"] = dtype.str
    if dtype.fields:
        interface["descr"] = dtype.descr
    view = np.asarray(_HostView(interface, owner))
    return view if view.dtype == dtype else view.view(dtype)
