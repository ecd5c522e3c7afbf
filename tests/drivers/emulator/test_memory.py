from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.emulator.memory import POISON, POISONED_PINNED_BYTES, AddressSpace
from graphdsl.drivers.emulator.problems import NEVER_WRITTEN, OTHER_DEVICE, OUTSIDE, RELEASED, AccessError, Problem
from graphdsl.errors import DriverError, MemoryFault


@pytest.fixture
def space() -> AddressSpace:
    return AddressSpace(2**20)


def test_addresses_are_aligned_apart_and_outside_of_any_process(space: AddressSpace) -> None:
    regions = [space.allocate(nbytes) for nbytes in (1, 255, 256, 257, 4096)]
    for region, following in itertools.pairwise(regions):
        assert region.base % 256 == 0
        assert following.base - (region.base + region.nbytes) >= 256
    assert all(2**60 <= region.base < 2**62 for region in regions)


def test_addresses_are_not_used_again_here_or_in_another_space(space: AddressSpace) -> None:
    first = space.allocate(64)
    space.release(first.base, "device")
    others = [space.allocate(64).base, AddressSpace(1024).allocate(64).base]
    assert first.base not in others
    assert len(set(others)) == 2


def test_written_bytes_are_read_back_and_others_refused(space: AddressSpace) -> None:
    region = space.allocate(16)
    space.writing(region.base + 4, 4)[:] = [1, 2, 3, 4]
    assert space.reading(region.base + 5, 2).tolist() == [2, 3]
    with pytest.raises(AccessError, match="byte 8 of the 16 bytes of device memory") as caught:
        space.reading(region.base + 4, 8)
    assert caught.value.kind == NEVER_WRITTEN
    assert caught.value.details == {
        "kind": NEVER_WRITTEN,
        "address": region.base + 8,
        "nbytes": 8,
        "allocation": (region.base, 16),
        "offset": 8,
    }


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 17), (15, 2), (16, 1), (100, 1), (-1, 1)])
def test_access_beyond_an_allocation(space: AddressSpace, offset: int, nbytes: int) -> None:
    region = space.allocate(16)
    for access in (space.reading, space.writing):
        with pytest.raises(AccessError) as caught:
            access(region.base + offset, nbytes)
        assert caught.value.kind == OUTSIDE


def test_access_after_release(space: AddressSpace) -> None:
    region = space.allocate(16)
    space.writing(region.base, 16)[:] = 0
    space.release(region.base, "device")
    for access in (space.reading, space.writing):
        with pytest.raises(AccessError, match="released") as caught:
            access(region.base + 3, 1)
        assert caught.value.kind == RELEASED


def test_pinned_memory_is_real_and_watched(space: AddressSpace) -> None:
    pinned = space.allocate_pinned(100)
    address = pinned.ctypes.data
    assert address % 4096 == 0
    assert pinned.tolist() == [POISON] * 100
    pinned[:3] = [7, 8, 9]
    assert space.reading(address, 3).tolist() == [7, 8, 9]
    with pytest.raises(AccessError) as caught:
        space.reading(address + 99, 2)
    assert caught.value.kind == OUTSIDE
    space.release(address, "pinned")
    with pytest.raises(AccessError) as caught:
        space.reading(address, 1)
    assert caught.value.kind == RELEASED
    pinned[0] = 5  # whoever still holds the array can touch it without a crash
    assert pinned[0] == 5


def test_addresses_of_released_pinned_memory_stay_taken(space: AddressSpace) -> None:
    seen = set()
    for _ in range(50):
        pinned = space.allocate_pinned(4096)
        seen.add(pinned.ctypes.data)
        space.release(pinned.ctypes.data, "pinned")
        del pinned
    assert len(seen) == 50


def test_pageable_memory_is_taken_as_it_is(space: AddressSpace) -> None:
    array = np.arange(4, dtype=np.uint8)
    assert space.is_pageable(array.ctypes.data)
    assert space.reading(array.ctypes.data + 1, 2).tolist() == [1, 2]
    space.writing(array.ctypes.data, 2)[:] = 9
    assert array.tolist() == [9, 9, 2, 3]


def test_device_addresses_of_nobody_are_not_taken_for_host_memory(space: AddressSpace) -> None:
    other = AddressSpace(1024).allocate(16)
    assert not space.is_pageable(other.base)
    with pytest.raises(AccessError) as caught:
        space.reading(other.base, 1)
    assert caught.value.kind == OUTSIDE


def test_memory_of_another_device_is_told_from_that_of_none(space: AddressSpace) -> None:
    space.allocate(16)
    other = AddressSpace(1024)
    foreign = other.allocate(16)
    with pytest.raises(AccessError, match="memory of another device: 4 bytes at") as caught:
        space.reading(foreign.base + 8, 4)
    assert caught.value.kind == OTHER_DEVICE
    assert caught.value.details == {"kind": OTHER_DEVICE, "address": foreign.base + 8, "nbytes": 4}
    assert "Instantiate the graph on the device" in str(caught.value.remedy)
    with pytest.raises(AccessError) as beside:
        space.reading(foreign.base + 16, 4)
    assert beside.value.kind == OUTSIDE


def test_memory_that_nobody_touches_takes_none_of_this_machine() -> None:
    """More than computers have: device and pinned memory, of which a few bytes are written and read."""
    nbytes = 200 * 2**30
    before = peak_bytes()
    device = Emulator()
    address = device.mem_alloc(nbytes)
    pinned = device.mem_host_alloc(nbytes)
    device.memcpy_htod(address + nbytes - 8, np.arange(8, dtype=np.uint8), 0)
    pinned[-1] = 7
    found = np.empty(4, np.uint8)
    device.memcpy_dtoh(found, address + nbytes - 4, 0)
    assert found.tolist() == [4, 5, 6, 7]
    with pytest.raises(MemoryFault) as caught:
        device.memcpy_dtoh(found, address + nbytes - 10, 0)
    assert caught.value.kind == NEVER_WRITTEN  # type: ignore[attr-defined]
    assert (pinned[0], pinned[POISONED_PINNED_BYTES], pinned[-1]) == (POISON, 0, 7)
    device.mem_free(address)
    device.mem_free_host(pinned)
    assert peak_bytes() - before < 100 * 2**20


def test_more_is_not_written_than_this_machine_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdsl.drivers.emulator.memory.THIS_MACHINE_BYTES", 2 * 4096)
    space = AddressSpace(2**40)
    first, second = space.allocate(4000), space.allocate(2**30)
    for _ in range(3):  # what is written again takes nothing more
        space.writing(first.base, 4000)[:] = 1
    space.writing(second.base, 96)
    for access in (space.writing, space.exposed):
        with pytest.raises(Problem, match="would take 8194 bytes of this machine, which has 8192") as caught:
            access(second.base + 2**20, 1)
        assert caught.value.code == 2
    with pytest.raises(AccessError):
        space.reading(second.base + 2**20, 1)
    space.release(first.base, "device")
    space.exposed(second.base + 2**20, 1000)


def peak_bytes() -> int:
    resource = pytest.importorskip("resource")
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def test_capacity() -> None:
    device = Emulator(memory_bytes=1000)
    assert device.mem_get_info() == (1000, 1000)
    first = device.mem_alloc(600)
    assert device.mem_get_info() == (400, 1000)
    with pytest.raises(DriverError, match="too little memory left") as caught:
        device.mem_alloc(401)
    assert (caught.value.call, caught.value.code) == ("cuMemAlloc", 2)
    device.mem_free(first)
    device.mem_alloc(1000)


@pytest.mark.parametrize("nbytes", [0, -1])
def test_allocations_of_nothing(device: Emulator, nbytes: int) -> None:
    with pytest.raises(DriverError) as caught:
        device.mem_alloc(nbytes)
    assert caught.value.code == 1


def test_pinned_memory_of_nothing(device: Emulator) -> None:
    array = device.mem_host_alloc(0)
    assert array.size == 0
    device.mem_free_host(array)
    assert device.live["pinned"] == 0


def test_more_pinned_memory_than_there_is(device: Emulator) -> None:
    with pytest.raises(DriverError) as caught:
        device.mem_host_alloc(2**60)
    assert (caught.value.call, caught.value.code) == ("cuMemHostAlloc", 2)


def test_releasing_what_is_not_allocated(device: Emulator) -> None:
    address = device.mem_alloc(64)
    pinned = device.mem_host_alloc(64)
    pageable = np.zeros(64, np.uint8)
    device.mem_free(0)  # as cuMemFree
    for wrong in (address + 1, pinned.ctypes.data, 12345):
        with pytest.raises(DriverError) as caught:
            device.mem_free(wrong)
        assert caught.value.code == 1
    for wrong_array in (pageable, pinned[1:]):
        with pytest.raises(DriverError) as caught:
            device.mem_free_host(wrong_array)
        assert caught.value.code == 1
    device.mem_free(address)
    device.mem_free_host(pinned)
    with pytest.raises(DriverError, match="released before"):
        device.mem_free(address)
    with pytest.raises(DriverError, match="released before"):
        device.mem_free_host(pinned)
    assert device.allocations == []


def test_copies_between_host_and_device(device: Emulator) -> None:
    source = np.arange(12, dtype=np.float32).reshape(3, 4)
    address = device.mem_alloc(source.nbytes)
    device.memcpy_htod(address, source, 0)
    found = np.empty_like(source)
    device.memcpy_dtoh(found, address, 0)
    assert np.array_equal(found, source)
    device.memcpy_dtoh(found[:0], address, 0)
    scalar = np.array(3.0, np.float32)
    device.memcpy_htod(address + 4, scalar, 0)
    device.memcpy_dtoh(found[0, :2], address, 0)
    assert found[0, :2].tolist() == [0, 3]


def test_copies_that_are_refused(device: Emulator) -> None:
    address = device.mem_alloc(16)
    data = np.zeros(32, np.uint8)
    with pytest.raises(MemoryFault) as outside:
        device.memcpy_htod(address, data, 0)
    assert (outside.value.code, outside.value.kind) == (1, OUTSIDE)  # type: ignore[attr-defined]
    with pytest.raises(MemoryFault) as unwritten:
        device.memcpy_dtoh(data[:16], address, 0)
    assert unwritten.value.kind == NEVER_WRITTEN  # type: ignore[attr-defined]
    with pytest.raises(DriverError, match="ordinary host memory"):
        device.memcpy_htod(data.ctypes.data, data, 0)
    with pytest.raises(DriverError, match="C contiguous"):
        device.memcpy_htod(address, data[:16:2], 0)
    with pytest.raises(DriverError) as no_stream:
        device.memcpy_htod(address, data[:16], 12345)
    assert no_stream.value.code == 400


def test_dlpack_shares_the_emulated_memory(device: Emulator) -> None:
    address = device.mem_alloc(64)
    owner = object()
    device.memcpy_htod(address + 20, np.array([3], np.float32), 0)
    array = device.dlpack_export(address + 16, (2, 3), (12, 4), np.dtype(np.float32), owner)
    assert array.ravel()[1] == 3
    assert array.view(np.uint8).ravel()[[0, 3, 8, 23]].tolist() == [POISON] * 4
    assert device.dlpack_device == array.__dlpack_device__() == (1, 0)
    array[...] = 5
    found = np.empty(6, np.float32)
    device.memcpy_dtoh(found, address + 16, 0)
    assert found.tolist() == [5] * 6
    with pytest.raises(MemoryFault):
        device.dlpack_export(address, (17,), (4,), np.dtype(np.float32), owner)
    assert device.dlpack_export(address, (0, 3), (12, 4), np.dtype(np.float32), owner).shape == (0, 3)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 12)), max_size=30))
def test_a_byte_can_be_read_exactly_if_it_was_written(steps: list[tuple[bool, int, int]]) -> None:
    """Against a model: a dict of the written bytes."""
    space = AddressSpace(2**10)
    region = space.allocate(32)
    model: dict[int, int] = {}
    for number, (write, offset, nbytes) in enumerate(steps):
        wanted = range(offset, offset + nbytes)
        access = space.writing if write else space.reading
        inside = wanted.stop <= 32
        if not inside or (not write and any(place not in model for place in wanted)):
            with pytest.raises(AccessError) as caught:
                access(region.base + offset, nbytes)
            assert caught.value.kind == (NEVER_WRITTEN if inside else OUTSIDE)
        elif write:
            access(region.base + offset, nbytes)[:] = number
            model.update(dict.fromkeys(wanted, number))
        else:
            assert access(region.base + offset, nbytes).tolist() == [model[place] for place in wanted]


def test_a_space_without_addresses_left_says_so(monkeypatch: pytest.MonkeyPatch, space: AddressSpace) -> None:
    monkeypatch.setattr("graphdsl.drivers.emulator.memory._next_address", 2**62 - 256)
    with pytest.raises(Problem, match="used up") as caught:
        space.allocate(1024)
    assert caught.value.code == 2


def test_contents_are_put_back_with_what_was_written(device: Emulator) -> None:
    address = device.mem_alloc(8)
    stream = device.stream_create()
    device.memcpy_htod(address, np.arange(4, dtype=np.uint8), stream)
    before = device.contents(address, 8)
    assert before.written.tolist() == [True] * 4 + [False] * 4
    device.memcpy_htod(address, np.full(8, 9, np.uint8), stream)
    assert device.contents(address, 8).data.tolist() == [9] * 8
    assert before.data[:4].tolist() == [0, 1, 2, 3]
    device.restore(address, before)
    found = np.empty(4, np.uint8)
    device.memcpy_dtoh(found, address, stream)
    assert found.tolist() == [0, 1, 2, 3]
    with pytest.raises(MemoryFault):
        device.memcpy_dtoh(np.empty(8, np.uint8), address, stream)


def test_contents_of_the_host(device: Emulator) -> None:
    memory = np.arange(4, dtype=np.uint8)
    before = device.contents(memory.ctypes.data, 4)
    memory[:] = 7
    device.restore(memory.ctypes.data, before)
    assert memory.tolist() == [0, 1, 2, 3]
