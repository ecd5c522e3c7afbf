"""The matrix products of `graphdsl.device` in the emulator: what the lanes of a warp bring, and get of the result.

This module must not know threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]

_ROW, _COLUMN = np.arange(32) // 4, 2 * (np.arange(32) % 4)


def product(brought: Mapping[int, tuple[Any, ...]], brain: bool) -> Matrix:
    """The numbers that each lane gets, as float32 of shape (32, 4).

    Parameters
    ----------
    brought : mapping of int to tuple
        By lane: four words of a, two of b, four numbers of c, as `graphdsl.device.mma_f16` lays them out.
    brain : bool
        True if words hold bfloat16, False if they hold float16.
    """
    lanes = [brought[lane] for lane in range(32)]
    words = np.array([[int(word) & 0xFFFF_FFFF for word in lane[:6]] for lane in lanes], np.uint32)
    halves = words.view(np.uint16).reshape(32, 6, 2)
    numbers = (halves.astype(np.uint32) << 16).view(np.float32) if brain else halves.view(np.float16)
    a, b, c = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
    for half in range(2):
        for place in range(4):
            a[_ROW + place % 2 * 8, _COLUMN + place // 2 * 8 + half] = numbers[:, place, half]
            c[_ROW + place // 2 * 8, _COLUMN + place % 2] = [lane[6 + place] for lane in lanes]
        for place in range(2):
            b[_COLUMN + place * 8 + half, _ROW] = numbers[:, 4 + place, half]
    result = a @ b + c
    return np.stack([result[_ROW + place // 2 * 8, _COLUMN + place % 2] for place in range(4)], 1).astype(np.float32)
