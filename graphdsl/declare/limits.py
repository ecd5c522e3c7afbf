"""What a device can do: the numbers that checks hold a definition to.

A driver fills `Limits` from the device at hand; `limits_of` gives those of a named compute capability where there is
no device. This module must not ask any device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

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
        Number of multiprocessors.
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


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": shared memory of a block with
# opt-in, in KiB.
_SHARED_OPTIN_KIB = {
    (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99,
    (9, 0): 227, (10, 0): 227, (10, 3): 227, (11, 0): 227, (12, 0): 99, (12, 1): 99,
}  # fmt: skip

LARGE_PARAMETER_BYTES = 32764
"""Bytes of kernel parameters from CUDA 12.1 on compute capability 7.0 (CUDA C++ Programming Guide)."""

DEFAULT_CAPABILITY = (9, 0)


_KNOWN = ", ".join(f"sm_{major}{minor}" for major, minor in _SHARED_OPTIN_KIB)


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
    if capability not in _SHARED_OPTIN_KIB:
        raise DeclarationError(
            "the limits of this compute capability are not known",
            field="target",
            value=name,
            remedy=f"Use one of {_KNOWN}, or pass Limits of your own.",
        )
    limits = Limits(name, capability, parameter_bytes=LARGE_PARAMETER_BYTES)
    return replace(limits, shared_optin_bytes=_SHARED_OPTIN_KIB[capability] * 1024)
