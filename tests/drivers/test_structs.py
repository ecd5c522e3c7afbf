"""The structs are the driver's: what is written through NumPy is read through cuda.bindings, field by field."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver

from graphdsl.drivers.results import UPDATE_RESULTS
from graphdsl.drivers.structs import (
    ACCESS_POLICY_WINDOW,
    ATTRIBUTE_VALUE_BYTES,
    ATTRIBUTE_VALUES,
    CLUSTER_DIMENSION,
    CLUSTER_SCHEDULING_POLICY,
    COOPERATIVE,
    EXEC_UPDATE_RESULT,
    HOST_NODE,
    KERNEL_NODE,
    MEM_SYNC_DOMAIN,
    MEM_SYNC_DOMAIN_MAP,
    MEMCPY_NODE,
    MEMSET_NODE,
    PREFERRED_CLUSTER_DIMENSION,
    PRIORITY,
    USE_NODE_PRIORITY,
)

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
    "ctx": "ctx",
}

STRUCTS = [
    (driver.CUDA_KERNEL_NODE_PARAMS, KERNEL_NODE, KERNEL_FIELDS),
    (driver.CUDA_MEMCPY3D, MEMCPY_NODE, MEMCPY_FIELDS),
    (driver.CUDA_MEMSET_NODE_PARAMS_v2, MEMSET_NODE, MEMSET_FIELDS),
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
    ("dtype", "nbytes"), [(KERNEL_NODE, 72), (MEMCPY_NODE, 208), (MEMSET_NODE, 48), (HOST_NODE, 16)]
)
def test_sizes_are_those_of_the_header(dtype, nbytes):
    assert dtype.itemsize == nbytes


def test_the_context_of_a_copy_lies_behind_what_the_driver_reads():
    assert MEMCPY_NODE.fields["ctx"][1] == 200


ATTRIBUTES = {
    ACCESS_POLICY_WINDOW: (
        "ACCESS_POLICY_WINDOW",
        {
            "base": "accessPolicyWindow.base_ptr",
            "nbytes": "accessPolicyWindow.num_bytes",
            "hit_ratio": "accessPolicyWindow.hitRatio",
            "hit": "accessPolicyWindow.hitProp",
            "miss": "accessPolicyWindow.missProp",
        },
    ),
    COOPERATIVE: ("COOPERATIVE", {"cooperative": "cooperative"}),
    CLUSTER_DIMENSION: ("CLUSTER_DIMENSION", {("dims", i): f"clusterDim.{axis}" for i, axis in enumerate("xyz")}),
    CLUSTER_SCHEDULING_POLICY: (
        "CLUSTER_SCHEDULING_POLICY_PREFERENCE",
        {"policy": "clusterSchedulingPolicyPreference"},
    ),
    PRIORITY: ("PRIORITY", {"priority": "priority"}),
    MEM_SYNC_DOMAIN_MAP: (
        "MEM_SYNC_DOMAIN_MAP",
        {"default": "memSyncDomainMap.default_", "remote": "memSyncDomainMap.remote"},
    ),
    MEM_SYNC_DOMAIN: ("MEM_SYNC_DOMAIN", {"domain": "memSyncDomain"}),
    PREFERRED_CLUSTER_DIMENSION: (
        "PREFERRED_CLUSTER_DIMENSION",
        {("dims", i): f"preferredClusterDim.{axis}" for i, axis in enumerate("xyz")},
    ),
}


@pytest.mark.parametrize("number", ATTRIBUTES, ids=lambda number: ATTRIBUTES[number][0])
def test_an_attribute_lies_where_the_bindings_read_it(number):
    name, fields = ATTRIBUTES[number]
    assert int(getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")) == number
    assert ATTRIBUTE_VALUES[number].itemsize == ATTRIBUTE_VALUE_BYTES
    assert {name if isinstance(name, str) else name[0] for name in fields} == set(ATTRIBUTE_VALUES[number].names)
    for ours, theirs in fields.items():
        row = np.zeros(1, ATTRIBUTE_VALUES[number])
        if isinstance(ours, tuple):
            row[ours[0]][0, ours[1]] = 1
        else:
            row[ours] = 1
        found = driver.CUkernelNodeAttrValue(_ptr=row.ctypes.data)
        for part in theirs.split("."):
            found = getattr(found, part)
        assert int(found) == 1, theirs


def test_the_flag_is_that_of_the_header():
    flags = driver.CUgraphInstantiate_flags
    assert int(flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) == USE_NODE_PRIORITY


def test_results_of_whole_updates_are_those_of_the_header():
    assert [each.name for each in sorted(driver.CUgraphExecUpdateResult)] == list(UPDATE_RESULTS)
    row = np.zeros(1, EXEC_UPDATE_RESULT)
    row["result"], row["node"], row["from"] = 5, 0x70, 0x80
    told = driver.CUgraphExecUpdateResultInfo(_ptr=row.ctypes.data)
    assert told.result == driver.CUgraphExecUpdateResult.CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED
    assert (int(told.errorNode), int(told.errorFromNode)) == (0x70, 0x80)


def test_choices_stand_in_the_order_of_the_header():
    from typing import get_args

    from graphdsl.declare.attributes import Access, ClusterPolicy, SyncDomain

    for options, enumeration, prefix in (
        (Access, driver.CUaccessProperty, "CU_ACCESS_PROPERTY_"),
        (ClusterPolicy, driver.CUclusterSchedulingPolicy, "CU_CLUSTER_SCHEDULING_POLICY_"),
        (SyncDomain, driver.CUlaunchMemSyncDomain, "CU_LAUNCH_MEM_SYNC_DOMAIN_"),
    ):
        for number, name in enumerate(get_args(options)):
            assert int(getattr(enumeration, prefix + name.upper())) == number


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
