"""How much a thread of a kernel may do, read from its machine code: whether it loops, and its instructions.

A kernel without a loop ends soon, whatever its arguments are; of one that loops that cannot be told. This module must
not compile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphdsl.compile.elf import instructions

# Instructions of compute capability 7.0 and later, as nvdisasm names them; `tests/compile/test_effort.py` holds them to
# what the toolkit makes for each target.
_BRANCH = 0x947  # BRA
_CALL = (0x943, 0x944)  # CALL.ABS, CALL.REL
_JUMPS = (0x949, 0x94A, 0x94C, 0x349, 0x34A, 0x34C)  # BRX, JMP, JMX: to where a register says
_SLEEP = 0x95D  # NANOSLEEP
_NOTHING = 0x918  # NOP, which fills the end of a function
_WIDE_SINCE = (9, 0)  # from here on a branch counts in words of four bytes


Words = np.ndarray[Any, np.dtype[np.uint64]]


class Effort(NamedTuple):
    """What a thread may do.

    Attributes
    ----------
    loops : bool
        False if no instruction is run twice. True if one may be, or if it cannot be told.
    instructions : int
        How many there are.
    """

    loops: bool
    instructions: int


UNKNOWN = Effort(True, 0)
"""Of a kernel whose code nobody knows."""


def read_effort(cubin: bytes, entry: str, target: tuple[int, int]) -> Effort:
    """What a thread of the kernel ``entry`` may do.

    Parameters
    ----------
    cubin : bytes
        A linked cubin; empty, or of a format that is not known, it tells nothing.
    entry : str
        The kernel's symbol.
    target : tuple of int
        Compute capability that it is for.

    Examples
    --------
    >>> read_effort(b"", "kernel", (9, 0))
    Effort(loops=True, instructions=0)
    """
    try:
        own, *beside = instructions(cubin, entry)
    except ValueError:
        return UNKNOWN
    # A function that is called and calls on may call itself.
    nested = any(np.isin(_opcodes(words), _CALL).any() for words in beside)
    every = [own, *beside]
    found = np.concatenate([_opcodes(words) for words in every])
    return Effort(
        nested or any(_goes_back(words, target) for words in every) or bool(np.isin(found, (*_JUMPS, _SLEEP)).any()),
        int((found != _NOTHING).sum()),
    )


def _opcodes(words: Words) -> np.ndarray[Any, np.dtype[np.uint64]]:
    found: Words = words[:, 0] & np.uint64(0xFFF)
    return found


def _goes_back(words: Words, target: tuple[int, int]) -> bool:
    """True if a branch goes to itself or to what stands before it, but for the one that closes every function."""
    found = _opcodes(words)
    branches = np.flatnonzero(found == _BRANCH)
    if not len(branches):
        return False
    low, high = words[branches, 0], words[branches, 1]
    back = (high >> np.uint64(17)) & np.uint64(1)  # the sign of the offset, which goes on in the upper word
    ahead = (low >> np.uint64(32)).astype(np.int64) | ((high & np.uint64(0x1FFFF)).astype(np.int64) << 32)
    offsets = (ahead - (back.astype(np.int64) << 49)) * (4 if target >= _WIDE_SINCE else 1)
    closes = (found[branches[-1] + 1 :] == _NOTHING).all() and offsets[-1] == -_INSTRUCTION
    return bool((offsets[: len(offsets) - bool(closes)] < 0).any())


_INSTRUCTION = 16  # bytes; an offset counts from behind the branch
