"""What a device can do: the numbers that checks hold a definition to.

A driver fills `Limits` from the device at hand; `limits_of` gives those of a named compute capability where there is
no device. This module must not ask any device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphdsl.errors import DeclarationError


@dataclass(frozen=True)
class Limits:
    """Launch limits of a device.

    Attributes
    ----------
    name : str
        What messages call the device, such as ``"sm_90"`` or ``"NVIDIA H200"``.
    compute_capability : tuple of int
        Major and minor number.
    max_threads : int
        Threads in a block.
    max_block : tuple of int
        Threads in a block in x, y and z.
    max_grid : tuple of int
        Blocks in a grid in x, y and z.
    shared_bytes : int
        Shared memory that a block has without opting in.
    shared_optin_bytes : int
        Shared memory that a block can have at most.
    parameter_bytes : int
        Bytes of kernel parameters.
    multiprocessors : int
        Number of multiprocessors; for a compute capability, of the largest device that has it.
    multiprocessor_threads, multiprocessor_blocks, multiprocessor_registers, multiprocessor_shared_bytes : int
        What a multiprocessor has for the blocks that run on it at once.
    reserved_shared_bytes : int
        Shared memory that the system keeps in every block.
    cooperative : bool
        True if a grid can be launched whole, so that its blocks can wait for each other.
    max_cluster : int
        Blocks in a cluster, 0 where there are none. An upper bound: a kernel with much shared memory can have fewer.
    preferred_clusters : bool
        True if the device can form larger clusters where they fit, and others where they do not.
    window_bytes : int
        Bytes of an access-policy window, 0 where there are none.
    priorities : tuple of int
        The least and the greatest priority of a node; the greatest is the smaller number.
    sync_domains : int
        Memory synchronisation domains.
    max_pitch : int
        Bytes from one row of a copy to the next at most.
    """

    name: str
    compute_capability: tuple[int, int]
    max_threads: int = 1024
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    shared_bytes: int = 48 * 1024
    shared_optin_bytes: int = 48 * 1024
    parameter_bytes: int = 4096
    multiprocessors: int = 1
    multiprocessor_threads: int = 1024
    multiprocessor_blocks: int = 16
    multiprocessor_registers: int = 65536
    multiprocessor_shared_bytes: int = 64 * 1024
    reserved_shared_bytes: int = 0
    cooperative: bool = True
    max_cluster: int = 0
    preferred_clusters: bool = False
    window_bytes: int = 0
    priorities: tuple[int, int] = (0, -5)
    sync_domains: int = 1
    max_pitch: int = 2**31 - 1


Target = str | tuple[int, int] | Limits
"""What stands for a device where there is none: a compute capability such as ``"sm_90"`` or ``(9, 0)``, or limits."""


class _Multiprocessor(NamedTuple):
    """What differs from one compute capability to the next; shared memory in KiB."""

    optin: int
    shared: int
    threads: int
    blocks: int
    most: int


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": shared memory of a block with opt-in,
# and shared memory, threads and blocks of a multiprocessor. The last column is no limit of the architecture: it counts
# the multiprocessors of the largest device that is sold.
_MULTIPROCESSORS = {
    (7, 5): _Multiprocessor(64, 64, 1024, 16, 72),
    (8, 0): _Multiprocessor(163, 164, 2048, 32, 108),
    (8, 6): _Multiprocessor(99, 100, 1536, 16, 84),
    (8, 7): _Multiprocessor(163, 164, 1536, 16, 16),
    (8, 9): _Multiprocessor(99, 100, 1536, 24, 142),
    (9, 0): _Multiprocessor(227, 228, 2048, 32, 132),
    (10, 0): _Multiprocessor(227, 228, 2048, 32, 152),
    (10, 3): _Multiprocessor(227, 228, 2048, 32, 152),
    (11, 0): _Multiprocessor(227, 228, 1536, 24, 20),
    (12, 0): _Multiprocessor(99, 100, 1536, 24, 188),
    (12, 1): _Multiprocessor(99, 100, 1536, 24, 48),
}

MAX_CLUSTER = 16
"""Blocks in a cluster where clusters are (compute capability 9.0 and up); no more than 8 run on all of these."""

PREFERRED_CLUSTERS_SINCE = (10, 0)
"""Compute capability; driver 580 takes none on an H200."""

PORTABLE_CLUSTER = 8
"""Blocks in a cluster that a kernel can have without opting in."""

_WINDOW_BYTES = 134_213_632
"""Of an access-policy window, as drivers report it for devices of compute capability 8.0 and up."""

LARGE_PARAMETER_BYTES = 32764
"""Bytes of kernel parameters from CUDA 12.1 on compute capability 7.0 (CUDA C++ Programming Guide)."""

DEFAULT_CAPABILITY = (9, 0)


_KNOWN = ", ".join(f"sm_{major}{minor}" for major, minor in _MULTIPROCESSORS)


def parse_capability(target: str | tuple[int, int]) -> tuple[int, int]:
    """``(9, 0)`` from ``"sm_90"``, ``"sm_90a"``, ``"9.0"`` or ``(9, 0)``.

    Raises
    ------
    DeclarationError
        If ``target`` is written in no such way.

    Examples
    --------
    >>> parse_capability("sm_90"), parse_capability("12.1")
    ((9, 0), (12, 1))
    """
    if isinstance(target, str):
        written = re.fullmatch(r"(?:sm_|compute_)?(\d+)\.?(\d)[af]?", target)
        parts: Any = written.groups() if written else ()
    else:
        parts = target
    try:
        major, minor = (int(part) for part in parts)
    except (TypeError, ValueError):
        raise DeclarationError(
            "a compute capability is written like sm_90, 9.0 or (9, 0)",
            field="target",
            value=repr(target),
            remedy=f"Use one of {_KNOWN}.",
        ) from None
    return major, minor


def limits_of(target: str | tuple[int, int] | Limits = DEFAULT_CAPABILITY) -> Limits:
    """Limits of a compute capability, by CUDA's published tables.

    Parameters
    ----------
    target : str, tuple of int, or Limits
        ``"sm_90"``, ``"9.0"`` or ``(9, 0)``; `Limits` are given back as they are.

    Raises
    ------
    DeclarationError
        If the compute capability is not known.

    Examples
    --------
    >>> limits_of("sm_90").shared_optin_bytes
    232448
    """
    if isinstance(target, Limits):
        return target
    capability = parse_capability(target)
    name = f"sm_{capability[0]}{capability[1]}"
    found = _MULTIPROCESSORS.get(capability)
    if found is None:
        raise DeclarationError(
            "the limits of this compute capability are not known",
            field="target",
            value=name,
            remedy=f"Use one of {_KNOWN}, or pass Limits of your own.",
        )
    has_clusters = capability >= (9, 0)
    return Limits(
        name,
        capability,
        shared_optin_bytes=found.optin * 1024,
        parameter_bytes=LARGE_PARAMETER_BYTES,
        multiprocessors=found.most,
        multiprocessor_threads=found.threads,
        multiprocessor_blocks=found.blocks,
        multiprocessor_shared_bytes=found.shared * 1024,
        reserved_shared_bytes=1024 if capability >= (8, 0) else 0,
        max_cluster=MAX_CLUSTER if has_clusters else 0,
        preferred_clusters=capability >= PREFERRED_CLUSTERS_SINCE,
        window_bytes=_WINDOW_BYTES if capability >= (8, 0) else 0,
        sync_domains=4 if has_clusters else 1,
    )
