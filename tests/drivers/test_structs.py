"""The structs are the driver's: what is written through NumPy is read through cuda.bindings, field by field."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver

from graphdsl.drivers.structs import HOST_NODE, KERNEL_NODE, MEMCPY_NODE, MEMSET_NODE

KERNEL_FIELDS = {
    "func": "func",
    **{f"gridDim{axis}": ("grid", i) for i, axis in enumerate("XYZ")},
    **{f"blockDim{axis}": ("block", i) for i, axis in enumerate("XYZ")},
    "sharedMemBytes": "shared_bytes",
    "kern": "kern",
    "ctx": "ctx",
}
MEMCPY_FIELDS = {
    **{
        f"{short}{theirs}": f"{side}_{ours}"
        for short, side in (("src", "source"), ("dst", "destination"))
        for theirs, ours in {
            "XInBytes": "x_bytes",
            "Y": "y",
            "Z": "z",
            "LOD": "lod",
            "MemoryType": "memory_type",
            "Host": "host",
            "Device": "device",
            "Array": "array",
            "Pitch": "pitch",
            "Height": "height",
        }.items()
    },
    "WidthInBytes": "width",
    "Height": "height",
    "Depth": "depth",
}
MEMSET_FIELDS = {
    "dst": "destination",
    "pitch": "pitch",
    "value": "value",
    "elementSize": "element_size",
    "width": "width",
    "height": "height",
}

STRUCTS = [
    (driver.CUDA_KERNEL_NODE_PARAMS, KERNEL_NODE, KERNEL_FIELDS),
    (driver.CUDA_MEMCPY3D, MEMCPY_NODE, MEMCPY_FIELDS),
    (driver.CUDA_MEMSET_NODE_PARAMS, MEMSET_NODE, MEMSET_FIELDS),
    (driver.CUDA_HOST_NODE_PARAMS, HOST_NODE, {"userData": "user_data"}),
]
CASES = [
    pytest.param(struct, dtype, theirs, ours, id=f"{struct.__name__}-{theirs}")
    for struct, dtype, fields in STRUCTS
    for theirs, ours in fields.items()
]


@pytest.mark.parametrize(("struct", "dtype", "theirs", "ours"), CASES)
def test_a_field_lies_where_the_bindings_read_it(struct, dtype, theirs, ours):
    row = np.zeros(1, dtype)
    value = 2 if "memory_type" in ours else 5  # a value of the enumeration
    if isinstance(ours, tuple):
        row[ours[0]][0, ours[1]] = value
    else:
        row[ours] = value
    read = struct(_ptr=row.ctypes.data)
    assert int(getattr(read, theirs) or 0) == value


@pytest.mark.parametrize(
    ("dtype", "nbytes"), [(KERNEL_NODE, 72), (MEMCPY_NODE, 200), (MEMSET_NODE, 40), (HOST_NODE, 16)]
)
def test_sizes_are_those_of_the_header(dtype, nbytes):
    assert dtype.itemsize == nbytes


def test_what_the_bindings_write_is_read_through_numpy():
    row = np.zeros(1, MEMCPY_NODE)
    written = driver.CUDA_MEMCPY3D(_ptr=row.ctypes.data)
    written.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
    written.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    written.dstDevice = 0x7000
    written.WidthInBytes, written.Height, written.Depth = 64, 1, 1
    assert row["source_memory_type"] == 1
    assert row["destination_memory_type"] == 2
    assert row["destination_device"] == 0x7000
    assert (row["width"], row["height"], row["depth"]) == (64, 1, 1)
