"""Memory of the emulator in the place of device memory that others own: a graph for a GPU is tried without one.

This module must not run anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from graphdsl.declare.definition import Definition
from graphdsl.declare.interop import foreign_array
from graphdsl.declare.operands import Buffer
from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator import Emulator
from graphdsl.run.binding import Binding
from graphdsl.run.blocks import DeviceBlock
from graphdsl.run.device_array import DeviceArray


class _Theirs(NamedTuple):
    """Where external memory lies."""

    device: int
    address: Address
    buffer: Buffer

    @property
    def end(self) -> Address:
        return self.address + max(self.buffer.allocation_nbytes, 1)


def stand_ins(graph: Definition, device: Emulator) -> dict[str, Binding]:
    """Where external device memory of a graph lies instead, by name.

    Memory that overlaps does so here. It holds what that of another emulator holds; of a GPU nobody can tell, and
    nothing is written.
    """
    found = {}
    stream = device.stream_create()  # it ends with the device
    for together in _runs(graph):
        first = together[0]
        home = device.sibling(first.device) if device.device_count > 1 else device
        block = DeviceBlock(home, max(each.end for each in together) - first.address)
        for each in together:
            buffer, address = each.buffer, block.address + each.address - first.address
            if isinstance(buffer.owner, DeviceArray) and isinstance(buffer.owner.device, Emulator):
                held = buffer.owner.device.contents(each.address, buffer.allocation_nbytes)
                home.restore(address, held)
            shape = tuple(map(int, buffer.shape))
            array = DeviceArray(
                home,
                address,
                shape,
                buffer.strides,
                buffer.dtype,
                owner=block,
                synchronize=lambda: stream,
                readonly=buffer.readonly,
            )
            found[buffer.name] = Binding(array, array, address)
    return found


def _runs(graph: Definition) -> Iterator[list[_Theirs]]:
    """External device memory, what overlaps together."""
    theirs = sorted(
        (
            _Theirs(buffer.device or 0, foreign_array(buffer.owner, buffer.name).address, buffer)
            for buffer in graph.operands.values()
            if isinstance(buffer, Buffer) and buffer.external and buffer.space == "device"
        ),
        key=lambda each: each[:2],
    )
    run: list[_Theirs] = []
    for each in theirs:
        if run and (each.device != run[0].device or each.address >= max(before.end for before in run)):
            yield run
            run = []
        run.append(each)
    if run:
        yield run
