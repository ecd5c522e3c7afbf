"""What a cubin says about a kernel: registers, shared memory, launch bounds and parameters, read from its ELF sections.

Nothing but the bytes is needed: no driver, no CUDA tool. This module must not know how the cubin was made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np

# Attributes of the .nv.info sections, as `cuobjdump -elf` names them.
_KPARAM_INFO = 0x17
_MAX_THREADS = 0x05  # .maxntid
_REQUIRED_THREADS = 0x10  # .reqntid
_REGCOUNT = 0x2F
_FORMAT_SIZED = 4  # the attribute's 16-bit field is a size, and that many bytes follow

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_RESERVED_SHARED_BYTES = 1024


class Resources(NamedTuple):
    """What a kernel needs, as its machine code says.

    Attributes
    ----------
    registers : int
        Registers of a thread.
    shared_bytes : int
        Static shared memory of a block.
    launch_bound : int or None
        Most threads that a block may have by its launch bounds (``.maxntid`` or ``.reqntid``), None without.
    parameters : tuple of tuple of int
        Offset and size in bytes of each parameter, in order.
    block : tuple of three int, or None
        The only block that it may be launched with (``.reqntid``).
    """

    registers: int
    shared_bytes: int
    launch_bound: int | None
    parameters: tuple[tuple[int, int], ...]
    block: tuple[int, int, int] | None = None

    @property
    def max_threads(self) -> int:
        """Threads that a block can have with so many registers each, and with its launch bounds.

        Registers are given to warps, 256 at a time, and the hardware's check takes it that warps come in fours, one
        for each partition of a multiprocessor: ``cudaOccMaxBlocksPerSMRegsLimit`` in cuda_occupancy.h of the CUDA
        toolkit.

        Examples
        --------
        >>> [Resources(registers, 0, None, ()).max_threads for registers in (32, 168, 255)]
        [1024, 384, 256]
        >>> Resources(32, 0, 200, ()).max_threads
        200
        """
        per_warp = -(-max(self.registers, 1) // 8) * 8 * _WARP
        warps = _REGISTERS // (per_warp * _PARTITIONS) * _PARTITIONS
        return min(_MOST_THREADS, warps * _WARP, self.launch_bound or _MOST_THREADS)


_REGISTERS = 65536
_WARP = 32
_PARTITIONS = 4
_MOST_THREADS = 1024


class _Section(NamedTuple):
    name: str
    offset: int
    size: int


def read_resources(cubin: bytes, entry: str, target: tuple[int, int]) -> Resources:
    """Registers, shared memory, launch bound and parameters of the kernel ``entry``.

    Parameters
    ----------
    cubin : bytes
        A linked cubin.
    entry : str
        The kernel's symbol.
    target : tuple of int
        Compute capability that it is for.

    Raises
    ------
    ValueError
        If the bytes are no cubin, or have no such kernel.
    """
    with _reading(f"a cubin with the kernel {entry}"):
        sections = {section.name: section for section in _sections(cubin)}
        general = list(_attributes(cubin, sections[".nv.info"]))
        own = list(_attributes(cubin, sections[f".nv.info.{entry}"]))
        registers = _registers(cubin, sections, general, entry)
    shared = sections.get(f".nv.shared.{entry}")
    return Resources(
        registers,
        0 if shared is None else _static_shared_bytes(shared.size, target),
        next((prod(_dims(value)) for attribute, value in own if attribute in (_MAX_THREADS, _REQUIRED_THREADS)), None),
        tuple(sorted(_parameter(value) for attribute, value in own if attribute == _KPARAM_INFO)),
        next((_dims(value) for attribute, value in own if attribute == _REQUIRED_THREADS), None),
    )


def kernels(cubin: bytes) -> list[str]:
    """Symbols of the kernels in a cubin: of its functions, those that have constants of their own.

    Raises
    ------
    ValueError
        If the bytes are no cubin.
    """
    with _reading("a cubin"):
        names = {section.name for section in _sections(cubin)}
    found = (name.removeprefix(".text.") for name in names if name.startswith(".text."))
    return sorted(name for name in found if f".nv.constant0.{name}" in names)


def target_of(cubin: bytes) -> tuple[int, int]:
    """The compute capability that a cubin is for: a byte of the ELF flags, which the second ABI version moved.

    Raises
    ------
    ValueError
        If the bytes are no cubin.
    """
    with _reading("a cubin"):
        version, (flags,) = cubin[8], struct.unpack_from("<I", cubin, 48)
    number = int(flags >> 8 if version >= _SECOND_ABI else flags) & 0xFF
    return number // 10, number % 10


_SECOND_ABI = 8


def kernel_attributes(cubin: bytes, entry: str) -> dict[int, bytes]:
    """Attributes of the kernel ``entry`` by their codes; of those that stand there several times, the last.

    Raises
    ------
    ValueError
        If the bytes are no cubin, or have no such kernel.
    """
    with _reading(f"a cubin with the kernel {entry}"):
        sections = {section.name: section for section in _sections(cubin)}
        return dict(_attributes(cubin, sections[f".nv.info.{entry}"]))


def opcodes(cubin: bytes, entry: str) -> frozenset[int]:
    """Opcodes of all instructions that the kernel ``entry`` may run: its own, and those of the functions beside it.

    An instruction takes 16 bytes, and its opcode the lowest 12 bits: so it is from compute capability 7.0 on.

    Raises
    ------
    ValueError
        If the bytes are no cubin, or have no such kernel.
    """
    return frozenset(opcode for words in instructions(cubin, entry) for opcode in (words[:, 0] & 0xFFF).tolist())


def instructions(cubin: bytes, entry: str) -> list[np.ndarray[Any, np.dtype[np.uint64]]]:
    """The instructions that the kernel ``entry`` may run: its own, and then those of each function beside it.

    Returns
    -------
    list of numpy.ndarray of uint64, shape (number of instructions, 2)
        The two words of each instruction, the lower one first.

    Raises
    ------
    ValueError
        If the bytes are no cubin, or have no such kernel.
    """
    with _reading(f"a cubin with the kernel {entry}"):
        sections = {section.name: section for section in _sections(cubin)}
        # Kernels have constants of their own; code without is of functions that any of them may call.
        beside = (
            section
            for name, section in sections.items()
            if name.startswith(".text.") and f".nv.constant0.{name[6:]}" not in sections
        )
        return [
            np.frombuffer(cubin, "<u8", section.size // 16 * 2, section.offset).reshape(-1, 2)
            for section in dict.fromkeys((sections[f".text.{entry}"], *beside))
        ]


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Around code that reads bytes of any origin: what it trips over is a `ValueError` that says what they are not."""
    try:
        yield
    except (struct.error, IndexError, KeyError, OverflowError, ValueError) as problem:
        raise ValueError(f"not {what}: {problem!r}") from problem


def _sections(cubin: bytes) -> Iterator[_Section]:
    magic, *_, offset, _, _, _, _, entry_size, count, names = _HEADER.unpack_from(cubin)
    if not magic.startswith(b"\x7fELF\x02\x01"):
        raise KeyError("a 64-bit ELF header")
    headers = [_SECTION.unpack_from(cubin, offset + i * entry_size) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, start, size, *_ in headers:
        yield _Section(_string(cubin, strings + name), start, size)


def _string(cubin: bytes, offset: int) -> str:
    return cubin[offset : cubin.index(b"\0", offset)].decode()


def _attributes(cubin: bytes, section: _Section) -> Iterator[tuple[int, bytes]]:
    """Code and value of each attribute: bytes of any number, or the two bytes that a short one has."""
    position, end = section.offset, section.offset + section.size
    while position < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, position)
        length = size if form == _FORMAT_SIZED else 0
        yield attribute, cubin[position + 4 : position + 4 + length] if length else cubin[position + 2 : position + 4]
        position += 4 + length


def _registers(cubin: bytes, sections: dict[str, _Section], attributes: list[tuple[int, bytes]], entry: str) -> int:
    for attribute, value in attributes:
        if attribute == _REGCOUNT:
            symbol, count = struct.unpack("<II", value)
            name, *_ = _SYMBOL.unpack_from(cubin, sections[".symtab"].offset + symbol * _SYMBOL.size)
            if _string(cubin, sections[".strtab"].offset + name) == entry:
                return int(count)
    raise KeyError("a register count")


def _static_shared_bytes(size: int, target: tuple[int, int]) -> int:
    # From sm_90 on, the section begins with the kilobyte that the system keeps in every block; the driver and
    # `ptxas -v` do not count it as the kernel's.
    return size - _RESERVED_SHARED_BYTES if target >= (9, 0) else size


def _dims(value: bytes) -> tuple[int, int, int]:
    x, y, z = struct.unpack("<III", value)
    return int(x), int(y), int(z)


def _parameter(value: bytes) -> tuple[int, int]:
    """Offset and size: index (32 bits), ordinal (16), offset (16), and a word whose bits from 18 on are the size."""
    _, _, offset, word = struct.unpack("<IHHI", value)
    return offset, word >> 18
