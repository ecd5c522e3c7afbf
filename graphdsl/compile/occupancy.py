"""How many threads a block of a kernel can have, and how many of its blocks a multiprocessor holds at once.

The rules are those of cuda_occupancy.h of the CUDA toolkit, which the tests compare them with. This module must not
ask any device.
"""

from __future__ import annotations

from graphdsl.compile.image import KernelImage
from graphdsl.declare.limits import Limits

_REGISTERS = 65536
_WARP = 32
_PARTITIONS = 4
_REGISTER_UNIT = 256
_MAX_THREADS = 1024


def max_threads(registers: int, launch_bound: int | None) -> int:
    """Threads that a block can have with so many registers each.

    Registers are given to warps, 256 at a time, and the hardware's check takes it that warps come in fours, one for
    each partition of a multiprocessor.

    Parameters
    ----------
    registers : int
        Registers of a thread.
    launch_bound : int or None
        Most threads that the kernel was compiled for.

    Examples
    --------
    >>> max_threads(32, None), max_threads(168, None), max_threads(255, None), max_threads(32, 200)
    (1024, 384, 256, 200)
    """
    warps = _warps_by_registers(_REGISTERS, registers)
    return min(_MAX_THREADS, warps * _WARP, launch_bound or _MAX_THREADS)


def blocks_of_multiprocessor(limits: Limits, threads: int, shared_bytes: int, image: KernelImage | None = None) -> int:
    """Blocks of a kernel that a multiprocessor holds at once.

    The device gives as much memory to shared memory, and takes it from the L1 cache, as that needs.

    Parameters
    ----------
    limits : Limits
        Of the device.
    threads : int
        Of a block, as many as the kernel takes.
    shared_bytes : int
        Dynamic shared memory of a block.
    image : KernelImage, optional
        The kernel; without, what is known gives an upper bound.

    Examples
    --------
    >>> from graphdsl.declare.limits import limits_of
    >>> blocks_of_multiprocessor(limits_of("sm_90"), 256, 0), blocks_of_multiprocessor(limits_of("sm_90"), 256, 100_000)
    (8, 2)
    """
    registers, static, barriers = (1, 0, 1)
    if image is not None:
        registers, static, barriers = image.registers, image.shared_bytes, image.placement.barriers
    warps = -(-threads // _WARP)
    shared = limits.reserved_shared_bytes + static + shared_bytes
    unit = 128 if limits.compute_capability >= (8, 0) else 256
    return min(
        limits.multiprocessor_blocks,
        limits.multiprocessor_threads // _WARP // warps,
        _warps_by_registers(limits.multiprocessor_registers, registers) // warps,
        limits.multiprocessor_shared_bytes // (-(-shared // unit) * unit) if shared else limits.multiprocessor_blocks,
        _barriers(limits) // barriers,
    )


def _warps_by_registers(available: int, registers: int) -> int:
    """Warps whose threads have so many registers: each partition of a multiprocessor has a fourth of what there is."""
    of_warp = -(-max(registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    return available // _PARTITIONS // of_warp * _PARTITIONS


def _barriers(limits: Limits) -> int:
    """Barriers of all blocks on a multiprocessor; before compute capability 9.0 they are not what runs out."""
    if limits.compute_capability < (9, 0):
        return 16 * limits.multiprocessor_blocks
    return limits.multiprocessor_blocks * (2 if limits.compute_capability in ((9, 0), (10, 0)) else 1)
