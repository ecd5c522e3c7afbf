"""What a CUDA device can do, as the driver tells it."""

from __future__ import annotations

from cuda.bindings import driver
from cuda.core import Device

from graphdsl.declare.limits import LARGE_PARAMETER_BYTES, MAX_CLUSTER, PREFERRED_CLUSTERS_SINCE, Limits
from graphdsl.drivers.cuda.calling import invoke

# Driver attributes by the field of `Limits` that they fill.
_ATTRIBUTES = {
    "max_threads": "MAX_THREADS_PER_BLOCK",
    "shared_bytes": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_optin_bytes": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "multiprocessor_threads": "MAX_THREADS_PER_MULTIPROCESSOR",
    "multiprocessor_blocks": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "multiprocessor_registers": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "multiprocessor_shared_bytes": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "reserved_shared_bytes": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "window_bytes": "MAX_ACCESS_POLICY_WINDOW_SIZE",
    "sync_domains": "MEM_SYNC_DOMAIN_COUNT",
    "max_pitch": "MAX_PITCH",
}
_LARGE_PARAMETERS_SINCE = 12010


def limits_of(device: Device) -> Limits:
    """What a device can do; its context is current."""

    def attribute(name: str) -> int:
        key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(invoke(driver.cuDeviceGetAttribute, key, device.device_id))

    capability = tuple(device.compute_capability)
    large = capability >= (7, 0) and invoke(driver.cuDriverGetVersion) >= _LARGE_PARAMETERS_SINCE
    block_x, block_y, block_z, grid_x, grid_y, grid_z = (
        attribute(f"MAX_{what}_DIM_{axis}") for what in ("BLOCK", "GRID") for axis in "XYZ"
    )
    return Limits(
        device.name,
        capability,
        max_block=(block_x, block_y, block_z),
        max_grid=(grid_x, grid_y, grid_z),
        parameter_bytes=LARGE_PARAMETER_BYTES if large else 4096,
        cooperative=bool(attribute("COOPERATIVE_LAUNCH")),
        max_cluster=MAX_CLUSTER if attribute("CLUSTER_LAUNCH") else 0,
        preferred_clusters=capability >= PREFERRED_CLUSTERS_SINCE,
        priorities=invoke(driver.cuCtxGetStreamPriorityRange),
        **{field: attribute(name) for field, name in _ATTRIBUTES.items()},
    )
