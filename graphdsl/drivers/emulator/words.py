"""What the functions of `graphdsl.device` do that load, store and reinterpret words, in an emulated kernel.

They go to memory through the array that they are given, so that each element is checked as any other, and demand what
the instruction of a GPU demands: an address that is a multiple of 16. This module must not know launches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdsl.drivers.emulator.arrays import Array

_BYTES = 16


def load4(array: Array, index: Any) -> tuple[Any, ...]:
    """Four elements of four bytes, or the words that smaller ones make."""
    first = array.place_of_vector(index, _BYTES)
    items = [array[place] for place in range(first, first + _BYTES // array.itemsize)]
    if array.itemsize == 4:
        return tuple(items)
    return tuple(np.array(items).astype(array.dtype).view(np.uint32))


load4_cg = load4


def store4(array: Array, index: Any, *items: Any) -> None:
    """Four elements of four bytes."""
    first = array.place_of_vector(index, _BYTES)
    for place, item in enumerate(items, first):
        array[place] = item


def atomic_add(array: Array, index: Any, value: Any) -> None:
    """Another thread never comes between: one runs at a time."""
    place = array.place_of_vector(index, array.itemsize)
    array[place] = np.float32(array[place] + np.float32(value))


def atomic_add4(array: Array, index: Any, *items: Any) -> None:
    """As `atomic_add`, for each of four."""
    first = array.place_of_vector(index, _BYTES)
    for place, item in enumerate(items, first):
        array[place] = np.float32(array[place] + np.float32(item))


def as_float32(word: Any) -> Any:
    """The float32 of a word."""
    return _word(word).view(np.float32)


def as_word(value: Any) -> Any:
    """The word of a float32, or of a float16."""
    if isinstance(value, np.float16):
        return np.uint32(value.view(np.uint16))
    return np.float32(value).view(np.uint32)


def as_half2(word: Any) -> Any:
    """The two float16 of a word."""
    low, high = np.array([_word(word)]).view(np.float16)
    return low, high


def _word(value: Any) -> Any:
    return np.uint32(int(value) & 0xFFFF_FFFF)
