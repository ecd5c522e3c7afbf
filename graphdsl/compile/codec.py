"""How an argument becomes the numbers that lie in parameter bytes, and back; calling conventions make such codecs.

This module must know neither Numba nor C++.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from graphdsl.errors import CompileError


class Codec(NamedTuple):
    """How values of one type become leaves and back.

    Attributes
    ----------
    leaves : tuple
        Path and dtype of each leaf, as `Leaf` has them.
    encode : callable
        Gives the tuple of leaf values of a value; also takes the argument's name, for messages.
    decode : callable
        Takes the leaf values from where the value begins, and the argument's name; gives the value.
    """

    leaves: tuple[tuple[tuple[Any, ...], np.dtype[Any]], ...]
    encode: Callable[[Any, str], tuple[Any, ...]]
    decode: Callable[[Iterator[Any], str], Any]


def wrong_value(wanted: str, value: Any, name: str) -> CompileError:
    """The error for a value of a kind that the parameter does not take."""
    return CompileError(
        f"the kernel is compiled for {wanted} here",
        field=f"argument {name!r}",
        value=repr(value),
        remedy=f"Pass {wanted}.",
    )
