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


def load_word(array: Array, index: Any) -> Any:
    """The word that elements of four bytes together make."""
    first = array.place_of_vector(index, 4)
    items = [array[place] for place in range(first, first + 4 // array.itemsize)]
    return np.array(items).astype(array.dtype).view(np.uint32)[0]


def prefetch_l2(array: Array, index: Any) -> None:
    """Nothing is read, but the element must be there."""
    array.place_of_vector(index, array.itemsize)


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


def pack_half2(a: Any, b: Any) -> Any:
    """A word of two numbers as float16."""
    return np.array([a, b], np.float32).astype(np.float16).view(np.uint32)[0]


def pack_bfloat2(a: Any, b: Any) -> Any:
    """A word of two numbers as bfloat16: rounded to nearest, halves to even."""
    words = np.array([a, b], np.float32).view(np.uint32)
    rounded = words + 0x7FFF + (words >> 16 & 1)
    low, high = np.where(words & 0x7FFF_FFFF > 0x7F80_0000, 0x7FFF_0000, rounded) >> 16  # NaN stays one
    return np.uint32(low | high << 16)


def _word(value: Any) -> Any:
    return np.uint32(int(value) & 0xFFFF_FFFF)
