"""Nodes of the emulator that write and wait for single words of memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator.machine import Machine
from graphdsl.drivers.emulator.nodes import NodeKind, struct_at
from graphdsl.drivers.emulator.problems import LAUNCH_FAILED, NOT_SUPPORTED, Problem
from graphdsl.drivers.structs import (
    BATCH_MEM_OP_NODE,
    MEM_OP,
    MEM_OP_BARRIER,
    WAIT_VALUE_32,
    WAIT_VALUE_64,
    WRITE_VALUE_32,
    WRITE_VALUE_64,
)

_MOST = 255  # of a node: driver 580 refuses 256
_WIDTHS = {WAIT_VALUE_32: 4, WRITE_VALUE_32: 4, WAIT_VALUE_64: 8, WRITE_VALUE_64: 8}
_WAITS = (WAIT_VALUE_32, WAIT_VALUE_64)


@dataclass(frozen=True)
class _Operation:
    operation: int
    address: Address = 0
    value: int = 0
    flags: int = 0

    @property
    def width(self) -> int:
        return _WIDTHS[self.operation]


def _read(machine: Machine, address: Address) -> tuple[_Operation, ...]:
    fields = struct_at(address, BATCH_MEM_OP_NODE)
    count = int(fields["count"])
    if count > _MOST:
        raise Problem(f"{count} memory operations in a node; it may have {_MOST}")
    if int(fields["flags"]):
        raise Problem(f"flags {int(fields['flags']):#x} of a batch memory operation node; there are none")
    machine.device_of(int(fields["ctx"]))
    data = ctypes.string_at(int(fields["operations"]), count * MEM_OP.itemsize) if count else b""
    return tuple(_operation(machine, row) for row in np.frombuffer(data, MEM_OP))


def _operation(machine: Machine, row: np.void) -> _Operation:
    operation = int(row["operation"])
    if operation == MEM_OP_BARRIER:
        return _Operation(operation)
    if operation not in _WIDTHS:
        raise Problem(f"memory operation {operation}; the emulator has none of that number", NOT_SUPPORTED)
    made = _Operation(
        operation, int(row["address"]), int(row["value"]) % 2 ** (8 * _WIDTHS[operation]), int(row["flags"])
    )
    if made.address % made.width:
        raise Problem(f"the word at {made.address:#x} is not aligned to its {made.width} bytes")
    if made.flags > (3 if operation in _WAITS else 0):
        raise Problem(f"flags {made.flags:#x} of memory operation {operation}; the emulator has none such")
    machine.require_memory(made.address, made.width)
    return made


def _run(machine: Machine, operations: tuple[_Operation, ...]) -> None:
    for each in operations:
        if each.operation in _WAITS:
            word = int.from_bytes(machine.space.reading(each.address, each.width).tobytes(), "little")
            if not _holds(word, each):
                raise Problem(
                    f"a wait for the word at {each.address:#x}, which is {word} and is waited for with {each.value}, "
                    "that nothing before it ends; on a GPU the graph would hang",
                    LAUNCH_FAILED,
                    "Write the word before the launch, or in a node that is ordered before.",
                )
        elif each.operation != MEM_OP_BARRIER:
            data = np.frombuffer(each.value.to_bytes(each.width, "little"), np.uint8)
            machine.space.writing(each.address, each.width)[:] = data


def _holds(word: int, wait: _Operation) -> bool:
    bits = 8 * wait.width
    holds = (
        (word - wait.value) % 2**bits < 2 ** (bits - 1),  # as a cyclic number
        word == wait.value,
        word & wait.value != 0,
        word | wait.value != 2**bits - 1,
    )
    return bool(holds[wait.flags])


def _accept(machine: Machine, old: tuple[_Operation, ...], new: tuple[_Operation, ...]) -> tuple[_Operation, ...]:
    if [each.operation for each in old] != [each.operation for each in new]:
        raise Problem("the number and the types of memory operations of an exec are fixed")
    return new


BATCH_MEM_OP = NodeKind("batch mem op", _read, _run, _accept)
