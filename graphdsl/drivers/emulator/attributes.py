"""Launch attributes of the emulator's kernel nodes: which values the driver takes, and which launches.

All is judged when an attribute is set, and again when an exec is updated, as driver 580 does on an H200. What becomes
of clusters beyond the largest that a kernel can be allowed is not known: here they are refused when the graph is
instantiated. This module must not know graphs.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphdsl.compile.image import KernelImage
from graphdsl.compile.occupancy import blocks_of_multiprocessor
from graphdsl.declare.limits import PORTABLE_CLUSTER, Limits
from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator.problems import (
    COOPERATIVE_LAUNCH_TOO_LARGE,
    INVALID_CLUSTER_SIZE,
    NOT_SUPPORTED,
    Problem,
)
from graphdsl.drivers.structs import (
    ACCESS_POLICY_WINDOW,
    ATTRIBUTE_VALUES,
    CLUSTER_DIMENSION,
    CLUSTER_SCHEDULING_POLICY,
    COOPERATIVE,
    MEM_SYNC_DOMAIN,
    MEM_SYNC_DOMAIN_MAP,
    PREFERRED_CLUSTER_DIMENSION,
    PRIORITY,
)

Values = Mapping[int, np.void]
"""Attributes of a node, as `ATTRIBUTE_VALUES` reads them, by number."""

_PERSISTING = 2


def read_attribute(number: int, address: Address, limits: Limits) -> np.void:
    """A copy of the value of an attribute; raises `Problem` if the driver takes no such attribute or value."""
    _require_known(number)
    if not address:
        raise Problem("the address of the attribute's value is NULL")
    dtype = ATTRIBUTE_VALUES[number]
    value: np.void = np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype).copy()[0]
    _CHECKS[number](value, limits)
    return value


# Device-updatable, the shared-memory carve-out, and a hint for NVLink.
_NOT_EMULATED = (13, 14, 16)


def _require_known(number: int) -> None:
    if number in _NOT_EMULATED:
        raise Problem(f"the emulator has no attribute {number}", NOT_SUPPORTED)
    if number not in ATTRIBUTE_VALUES:
        raise Problem(f"{number} is no attribute that kernel nodes of a graph have")


def default_attribute(number: int) -> np.void:
    """What an attribute is that was never set."""
    _require_known(number)
    value: np.void = np.zeros(1, ATTRIBUTE_VALUES[number])[0]
    if number == MEM_SYNC_DOMAIN_MAP:
        value["remote"] = 1
    return value


def _window(value: np.void, limits: Limits) -> None:
    nbytes, ratio = int(value["nbytes"]), float(value["hit_ratio"])
    if nbytes > limits.window_bytes:
        raise Problem(f"an access-policy window of {nbytes} bytes; the device takes {limits.window_bytes}")
    if not 0 <= ratio <= 1:
        raise Problem(f"the hit ratio of an access-policy window is {ratio}; it must be from 0 to 1")
    if value["hit"] > _PERSISTING or value["miss"] >= _PERSISTING:
        raise Problem("the misses of an access-policy window must be normal or streaming")


def _cooperative(value: np.void, limits: Limits) -> None:
    if value["cooperative"] and not limits.cooperative:
        raise Problem("the device has no cooperative launches", NOT_SUPPORTED)


def _cluster(value: np.void, limits: Limits) -> None:
    dims = value["dims"].tolist()
    if any(dims) and not limits.max_cluster:
        raise Problem("the device has no clusters", NOT_SUPPORTED)
    if any(dims) and not all(dims):
        raise Problem(f"a cluster of {dims} blocks; each dimension must be at least 1")


def _policy(value: np.void, limits: Limits) -> None:
    if value["policy"] > 2:
        raise Problem(f"there is no cluster scheduling policy of number {value['policy']}")


def _preferred(value: np.void, limits: Limits) -> None:
    if any(value["dims"]) and not limits.preferred_clusters:
        raise Problem("the device has no preferred clusters")
    _cluster(value, limits)


def _priority(value: np.void, limits: Limits) -> None:
    """Any will do: the nearest that the device has is kept."""
    least, greatest = limits.priorities
    value["priority"] = min(max(value["priority"], greatest), least)


def _domains(value: np.void, limits: Limits) -> None:
    if max(int(value["default"]), int(value["remote"])) >= limits.sync_domains:
        raise Problem(f"the device has {limits.sync_domains} memory synchronisation domains, numbered from 0")


def _domain(value: np.void, limits: Limits) -> None:
    if value["domain"] > 1:
        raise Problem(f"there is no memory synchronisation domain of number {value['domain']}")


_CHECKS: dict[int, Any] = {
    ACCESS_POLICY_WINDOW: _window,
    COOPERATIVE: _cooperative,
    CLUSTER_DIMENSION: _cluster,
    CLUSTER_SCHEDULING_POLICY: _policy,
    PRIORITY: _priority,
    MEM_SYNC_DOMAIN_MAP: _domains,
    MEM_SYNC_DOMAIN: _domain,
    PREFERRED_CLUSTER_DIMENSION: _preferred,
}


def _dims(values: Values, number: int) -> list[int] | None:
    """The dimensions of a cluster; None if the node has none."""
    dims = values[number]["dims"].tolist() if number in values else []
    return dims if any(dims) else None


def is_cooperative(values: Values) -> bool:
    """True if all blocks of the launch run at once."""
    return COOPERATIVE in values and bool(values[COOPERATIVE]["cooperative"])


def require_clusters(
    values: Values, grid: tuple[int, ...], limits: Limits, image: KernelImage, *, large_allowed: bool
) -> None:
    """Refuse clusters that are too large, do not fill the grid, or are not those of the kernel."""
    compiled, bound = image.placement.cluster, image.placement.max_cluster
    cluster, preferred = _dims(values, CLUSTER_DIMENSION), _dims(values, PREFERRED_CLUSTER_DIMENSION)
    if compiled is not None:
        if cluster not in (None, list(compiled)):
            raise _bad_cluster(f"{image.name!r} was compiled for clusters of {compiled} blocks, not {cluster}")
        cluster = list(compiled)
    if cluster is not None:
        if math.prod(cluster) > min(math.inf if large_allowed else PORTABLE_CLUSTER, bound or math.inf):
            raise _bad_cluster(f"{image.name!r} was not allowed a cluster of {math.prod(cluster)} blocks")
        if any(extent % part for extent, part in zip(grid, cluster)):
            raise _bad_cluster(f"clusters of {cluster} blocks do not fill a grid of {list(grid)}")
    if preferred is not None:
        multiple = cluster is not None and not any(part % other for part, other in zip(preferred, cluster))
        if cluster is None or not multiple or preferred[2] != cluster[2]:
            raise Problem(f"a preferred cluster of {preferred} blocks is no multiple of {cluster}")
        if any(extent % part for extent, part in zip(grid, preferred)):
            raise Problem(f"preferred clusters of {preferred} blocks do not fill a grid of {list(grid)}")


def require_possible_clusters(values: Values, limits: Limits, image: KernelImage) -> None:
    """Refuse, when a graph is instantiated, clusters that no kernel can have, and none where there must be some."""
    cluster = _dims(values, CLUSTER_DIMENSION) or image.placement.cluster
    if cluster is None and image.placement.needs_cluster:
        raise _bad_cluster(f"{image.name!r} runs in clusters only")
    if cluster is not None and math.prod(cluster) > limits.max_cluster:
        raise _bad_cluster(f"a cluster of {math.prod(cluster)} blocks, and the device has {limits.max_cluster}")


def _bad_cluster(rule: str) -> Problem:
    return Problem(rule, INVALID_CLUSTER_SIZE)


def require_resident(
    grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, limits: Limits, image: KernelImage
) -> None:
    """Refuse a cooperative grid whose blocks do not run at once."""
    most = limits.multiprocessors * blocks_of_multiprocessor(limits, math.prod(block), shared_bytes, image)
    if math.prod(grid) > most:
        raise Problem(
            f"{math.prod(grid)} blocks of {image.name!r} in a cooperative launch, and the device holds {most} at once",
            COOPERATIVE_LAUNCH_TOO_LARGE,
        )
