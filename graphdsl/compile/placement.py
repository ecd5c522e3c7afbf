"""What a kernel asks for where its blocks run: clusters, barriers, a grid that waits for itself.

Read from its code, whatever that was made from. This module must not compile.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from graphdsl.compile.elf import kernel_attributes
from graphdsl.compile.graph_calls import kernel_text

# Attributes of the .nv.info sections, as `cuobjdump -elf` names them.
_CLUSTER = 0x3D  # .reqnctapercluster
_EXPLICIT_CLUSTER = 0x3E
_MAX_CLUSTER = 0x3F  # .maxclusterrank
_BARRIERS = 0x4C


class Placement(NamedTuple):
    """What a kernel asks for.

    Attributes
    ----------
    cluster : tuple of three int, or None
        Blocks in a cluster, fixed when it was compiled.
    needs_cluster : bool
        True if it runs in clusters only, those of the launch if it has none of its own.
    max_cluster : int or None
        Most blocks that a cluster may have by its launch bounds.
    barriers : int
        Barriers of a block that it uses.
    syncs_grid : bool
        True if it surely waits for all blocks of its grid, which only a cooperative launch can.
    """

    cluster: tuple[int, int, int] | None = None
    needs_cluster: bool = False
    max_cluster: int | None = None
    barriers: int = 1
    syncs_grid: bool = False


def read_placement(cubin: bytes, entry: str, ptx: str = "") -> Placement:
    """What the kernel ``entry`` of a cubin asks for; nothing where the cubin is empty or of an unknown format.

    Parameters
    ----------
    cubin : bytes
        A linked cubin.
    entry : str
        The kernel's symbol.
    ptx : str, optional
        PTX that holds the kernel and was linked into the cubin; without, a wait for the grid is not seen.

    Examples
    --------
    >>> read_placement(b"", "kernel")
    Placement(cluster=None, needs_cluster=False, max_cluster=None, barriers=1, syncs_grid=False)
    """
    syncs_grid = _GRID_SYNC.search(_own_text(ptx, entry)) is not None
    try:
        found = kernel_attributes(cubin, entry)
    except ValueError:
        return Placement(syncs_grid=syncs_grid)
    cluster, most, barriers = (found.get(number, b"") for number in (_CLUSTER, _MAX_CLUSTER, _BARRIERS))
    return Placement(
        struct.unpack("<III", cluster) if cluster else None,
        _EXPLICIT_CLUSTER in found,
        struct.unpack("<I", most)[0] if most else None,
        max(struct.unpack("<H", barriers)[0], 1) if barriers else 1,
        syncs_grid,
    )


# The function that Numba calls, and what CUDA C++ finds the grid's barrier by.
_GRID_SYNC = re.compile(r"\bcudaCGSynchronize\b|%envreg[12]\b")


def _own_text(ptx: str, entry: str) -> str:
    """PTX of the kernel: of several, its body alone; of one, its device functions too."""
    return ptx if len(re.findall(r"\.entry\s", ptx)) < 2 else kernel_text(ptx, entry)[1]
