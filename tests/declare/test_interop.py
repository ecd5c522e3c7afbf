"""Where foreign memory lies: NumPy, buffers, the CUDA array interface, and DLPack."""

from __future__ import annotations

import array
import ctypes
import gc
import io
import mmap
import weakref

import numpy as np
import pytest

from graphdsl.declare.interop import _DLTensor, foreign_array, host_bytes, host_view, owns_memory
from graphdsl.errors import DeclarationError


class CudaArray:
    """An object as Numba, CuPy and PyTorch show theirs."""

    def __init__(self, **interface):
        interface = {"shape": (2, 3), "typestr": "<f4", "data": (0x7000, False), "version": 3, **interface}
        self.__cuda_array_interface__ = {key: value for key, value in interface.items() if value is not Ellipsis}


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor:
    """A DLPack producer with memory wherever the test says."""

    def __init__(self, *, device=2, code=2, bits=32, lanes=1, shape=(2, 3), strides=None, data=0x7000, offset=0):
        self.device, self.asked = device, {}
        self.tensor = _DLTensor()
        self.tensor.data, self.tensor.byte_offset = data, offset
        self.tensor.device.device_type = device
        self.tensor.ndim = len(shape)
        self.tensor.dtype.code, self.tensor.dtype.bits, self.tensor.dtype.lanes = code, bits, lanes
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        if strides is not None:
            self.strides = (ctypes.c_int64 * len(strides))(*strides)
            self.tensor.strides = ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64))

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **options):
        self.asked = options
        return _new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def located(owner):
    found = foreign_array(owner, "w")
    return found.address, found.shape, found.strides, found.dtype, found.space, found.readonly


def refused(owner, match):
    with pytest.raises(DeclarationError, match=match) as caught:
        foreign_array(owner, "w")
    assert caught.value.field == "w"
    assert caught.value.remedy


# Host memory


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a.T, lambda a: a[1:, ::2], lambda a: a[0, 0], lambda a: a[:0]])
def test_numpy_arrays(view):
    owner = view(np.zeros((4, 6), np.int16))[...]
    assert located(owner) == (owner.ctypes.data, owner.shape, owner.strides, owner.dtype, "pageable", False)


def test_numpy_arrays_that_may_not_be_written():
    owner = np.zeros(3)
    owner.flags.writeable = False
    assert located(owner)[-1] is True


@pytest.mark.parametrize(
    ("owner", "dtype", "readonly"),
    [
        (bytearray(8), np.uint8, False),
        (bytes(8), np.uint8, True),
        (b"", np.uint8, True),
        (array.array("f", [1, 2]), np.float32, False),
        (memoryview(bytearray(8)).cast("i"), np.int32, False),
        ((ctypes.c_double * 3)(), np.float64, False),
    ],
)
def test_objects_with_the_buffer_protocol(owner, dtype, readonly):
    found = foreign_array(owner, "w")
    view = memoryview(owner)
    assert (found.shape, found.dtype, found.space, found.readonly) == (view.shape, dtype, "pageable", readonly)
    assert found.address == np.asarray(view).ctypes.data


def test_arrays_that_run_backwards_are_refused():
    refused(np.zeros(4)[::-1], "negative")
    refused(CudaArray(shape=(4,), strides=(-4,)), "negative")
    refused(Tensor(shape=(4,), strides=(-1,)), "negative")


def test_masked_arrays_are_refused():
    refused(np.ma.masked_array([1, 2], mask=[True, False]), "masked")


@pytest.mark.parametrize("owner", [None, 3, "text", [1, 2], object()])
def test_what_owns_no_memory_is_refused(owner):
    refused(owner, "no buffer protocol")


# The CUDA array interface


def test_device_arrays():
    assert located(CudaArray()) == (0x7000, (2, 3), (12, 4), np.float32, "device", False)


@pytest.mark.parametrize("strides", [None, ..., (12, 4)])
def test_device_arrays_with_and_without_strides(strides):
    assert located(CudaArray(strides=strides))[2] == (12, 4)


def test_device_arrays_with_strides_of_their_own():
    assert located(CudaArray(strides=(4, 8), data=(0x7010, True))) == (
        0x7010,
        (2, 3),
        (4, 8),
        np.float32,
        "device",
        True,
    )


def test_device_arrays_of_no_dimensions():
    assert located(CudaArray(shape=()))[1:3] == ((), ())


def test_device_arrays_of_structures():
    pair = np.dtype([("key", "<i4"), ("value", "<f8")])
    assert located(CudaArray(typestr="|V12", descr=pair.descr, shape=(5,)))[2:4] == ((12,), pair)


def test_device_arrays_with_a_mask_are_refused():
    refused(CudaArray(mask=CudaArray()), "masked")


@pytest.mark.parametrize("broken", [{"shape": ...}, {"data": ...}, {"typestr": "what"}, {"shape": 3}, {"data": 5}])
def test_interfaces_that_are_malformed_are_refused(broken):
    refused(CudaArray(**broken), "malformed")


class Gradient:
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("this tensor requires a gradient")


class GradientWithDlpack(Tensor, Gradient):
    pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": (-3,)},
        {"shape": (2, -3)},
        {"strides": (4,)},
        {"strides": (4, 4, 4)},
        {"data": (-1, False)},
        {"data": (2**64, False)},
        {"data": (0, False)},
        {"typestr": 3},
        {"data": 3},
        {"shape": None},
    ],
    ids=str,
)
def test_interfaces_that_describe_no_memory_are_refused(wrong):
    refused(CudaArray(**wrong), "malformed|it says that it has")


def test_an_interface_that_is_none_is_refused():
    owner = CudaArray()
    owner.__cuda_array_interface__ = 3
    refused(owner, "malformed")


def test_an_empty_array_needs_no_address():
    assert located(CudaArray(shape=(0, 3), data=(0, False)))[:2] == (0, (0, 3))


def test_dlpack_that_describes_no_memory_is_refused():
    refused(Tensor(shape=(-2,)), "shape")
    refused(Tensor(data=0), "address 0x0")
    tensor = Tensor()
    tensor.tensor.shape = None
    refused(tensor, "no shape")


# What keeps the memory


@pytest.mark.parametrize(
    ("owner", "grow"),
    [
        (bytearray(16), lambda owner: owner.extend(b"more")),
        (array.array("f", [1, 2]), lambda owner: owner.append(3)),
        (io.BytesIO(b"0123"), lambda owner: owner.write(b"0123456789")),
        (mmap.mmap(-1, 4096), lambda owner: owner.close()),
    ],
    ids=["bytearray", "array", "BytesIO", "mmap"],
)
def test_memory_cannot_move_while_it_is_kept(owner, grow):
    found = foreign_array(owner.getbuffer() if isinstance(owner, io.BytesIO) else owner, "w")
    gc.collect()
    with pytest.raises(BufferError):
        grow(owner)
    del found
    gc.collect()
    grow(owner)


def test_a_dlpack_export_is_kept():
    class Exporting(Tensor):
        def __dlpack__(self, **options):
            self.capsule = super().__dlpack__(**options)
            return self.capsule

    owner = Exporting()
    assert foreign_array(owner, "w").keep == (owner, owner.capsule)


@pytest.mark.parametrize(
    ("value", "owns"),
    [
        (np.zeros(2), True),
        (bytearray(2), True),
        (None, False),
        (3, False),
        (np.float32(3), False),
        ("text", False),
        ([1, 2], False),
    ],
)
def test_what_owns_memory(value, owns):
    assert owns_memory(value) is owns


def test_an_interface_that_raises_says_why():
    refused(Gradient(), "requires a gradient")
    assert located(GradientWithDlpack())[0] == 0x7000


# DLPack


def test_dlpack_arrays():
    assert located(Tensor()) == (0x7000, (2, 3), (12, 4), np.float32, "device", False)
    assert located(Tensor(strides=(1, 2), offset=16)) == (0x7010, (2, 3), (4, 8), np.float32, "device", False)


@pytest.mark.parametrize(("device", "space"), [(1, "pageable"), (2, "device"), (3, "pinned"), (13, "device")])
def test_where_dlpack_arrays_live(device, space):
    assert located(Tensor(device=device))[4] == space


def test_dlpack_producers_are_not_asked_to_synchronise():
    on_device, on_host = Tensor(), Tensor(device=1)
    foreign_array(on_device, "w")
    foreign_array(on_host, "w")
    assert on_device.asked == {"stream": -1}
    assert on_host.asked == {}


@pytest.mark.parametrize(
    ("code", "bits", "dtype"),
    [(0, 8, "i1"), (0, 64, "i8"), (1, 16, "u2"), (2, 16, "f2"), (2, 64, "f8"), (5, 64, "c8"), (6, 8, "?")],
)
def test_dtypes_of_dlpack_arrays(code, bits, dtype):
    assert located(Tensor(code=code, bits=bits))[3] == np.dtype(dtype)


@pytest.mark.parametrize(
    "described", [{"code": 4, "bits": 16}, {"code": 2, "bits": 8}, {"code": 0, "bits": 4}, {"lanes": 4}]
)
def test_dtypes_that_numpy_lacks_are_refused(described):
    refused(Tensor(**described), "no dtype")


def test_other_devices_are_refused():
    refused(Tensor(device=10), "device type 10")


class Failing(Tensor):
    def __dlpack__(self, **options):
        raise BufferError("exported already")


class Wrong(Tensor):
    def __dlpack__(self, **options):
        return _new_capsule(ctypes.addressof(self.tensor), b"used_dltensor", None)


def test_dlpack_that_fails_says_why():
    refused(Failing(), "exported already")
    refused(Wrong(), "PyCapsule_GetPointer")


class Numpy:
    """NumPy's own DLPack, as a producer that is no NumPy array."""

    def __init__(self, owner):
        self.owner = owner

    def __dlpack_device__(self):
        return self.owner.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.owner.__dlpack__(**options)


def test_a_real_producer():
    owner = np.arange(12, dtype=np.int32).reshape(3, 4)[:, 1:]
    assert located(Numpy(owner)) == (owner.ctypes.data, (3, 3), (16, 4), np.int32, "pageable", False)


# Views of host memory


def test_a_view_of_host_memory():
    owner = np.arange(12, dtype=np.int32).reshape(3, 4)
    view = host_view(owner.ctypes.data + 4, (3, 2), (16, 8), np.dtype(np.int32), owner)
    assert (view == owner[:, 1::2]).all()
    view[:] = 0
    assert owner.sum() == owner[:, ::2].sum()


@pytest.mark.parametrize("dtype", [np.float16, "M8[s]", np.bool_, [("key", np.int32), ("values", np.float32, 3)]])
def test_a_view_has_the_dtype_asked_for(dtype):
    owner = np.zeros(4, dtype)
    view = host_view(owner.ctypes.data, owner.shape, owner.strides, owner.dtype, owner)
    assert (view.dtype, view.shape) == (owner.dtype, owner.shape)


def test_a_view_that_may_not_be_written():
    owner = np.zeros(4)
    view = host_view(owner.ctypes.data, (4,), (8,), owner.dtype, owner, readonly=True)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_a_view_keeps_the_owner_of_the_memory_alive():
    owner = np.zeros(4)
    alive = weakref.ref(owner)
    view = host_view(owner.ctypes.data, (4,), (8,), owner.dtype, owner)
    del owner
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


def test_a_view_of_no_memory():
    assert host_view(0, (0, 4), (16, 4), np.dtype(np.int32), None).shape == (0, 4)
    assert host_bytes(0, 0).size == 0


def test_bytes_of_host_memory():
    owner = np.zeros(4, np.uint8)
    host_bytes(owner.ctypes.data, 4)[1] = 7
    assert owner.tolist() == [0, 7, 0, 0]
