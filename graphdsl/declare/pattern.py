"""How a value is repeated over memory: what a memset node can write.

The driver's memset repeats 1, 2 or 4 bytes. Checks and emission both need to know which values that allows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_ELEMENT_SIZE = 4
"""Bytes; the widest element that the driver repeats."""


def element_size(dtype: np.dtype[Any]) -> int:
    """Bytes that a memset repeats to fill an array of ``dtype``: its item size, 4 at most.

    Examples
    --------
    >>> element_size(np.dtype(np.float16)), element_size(np.dtype(np.complex64))
    (2, 4)
    """
    return min(dtype.itemsize, MAX_ELEMENT_SIZE)


def memset_pattern(value: Any, dtype: np.dtype[Any]) -> int | None:
    """The bits that fill an array of ``dtype`` with ``value`` when repeated; None if no such bits exist.

    Parameters
    ----------
    value : number
        A value that ``dtype`` holds.
    dtype : numpy.dtype
        Type of an element of the array.

    Examples
    --------
    >>> hex(memset_pattern(1.0, np.dtype(np.float32)))
    '0x3f800000'
    >>> memset_pattern(1.0, np.dtype(np.float64)) is None
    True
    """
    data = np.array(value, dtype).tobytes()
    size = element_size(dtype)
    if len(data) % size or data != data[:size] * (len(data) // size):
        return None
    return int.from_bytes(data[:size], "little")
