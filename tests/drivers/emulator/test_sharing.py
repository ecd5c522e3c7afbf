from __future__ import annotations

from contextlib import suppress

import pytest

from graphdsl.drivers.emulator.memory import AddressSpace
from graphdsl.drivers.emulator.problems import AccessError
from graphdsl.drivers.emulator.sharing import Shared, Sharing


@pytest.fixture
def space() -> AddressSpace:
    return AddressSpace(2**12)


def written(space: AddressSpace, address: int, nbytes: int) -> bool:
    try:
        space.reading(address, nbytes)
    except AccessError:
        return False
    return True


def test_what_was_there_is_gone_at_the_first_use_and_after_the_last(space):
    base = space.allocate(16).base
    space.writing(base, 16)[:] = 7
    with Sharing([Shared(base, 8, (1, 2, 3))], space) as sharing:
        assert written(space, base, 16)
        sharing.begin(2)
        assert not written(space, base, 8)
        assert written(space, base + 8, 8)  # what is shared, and nothing else
        space.writing(base, 8)[:] = 1
        for node in (1, 3):
            sharing.begin(node)
        for node in (2, 3):
            sharing.end(node)
            assert written(space, base, 8)
        sharing.end(1)
        assert not written(space, base, 8)


def test_nodes_that_are_left_out_count_as_ended(space):
    base = space.allocate(8).base
    with Sharing([Shared(base, 8, (1, 2))], space) as sharing:
        sharing.end(1)
        sharing.begin(2)
        space.writing(base, 8)[:] = 1
        sharing.end(2)
        assert not written(space, base, 8)


def test_at_the_end_of_a_launch_all_is_gone(space):
    base = space.allocate(8).base
    with suppress(KeyError), Sharing([Shared(base, 8, (1, 2))], space) as sharing:
        sharing.begin(1)
        space.writing(base, 8)[:] = 1
        raise KeyError
    assert not written(space, base, 8)


def test_what_nobody_has_touched_takes_no_memory(space):
    region = space.allocate(64)
    space.writing(region.base, 8)[:] = 1
    taken = region.occupied
    for _ in range(10):
        space.discard(region.base, 64)
        assert region.occupied == 0
        space.writing(region.base, 8)[:] = 1
        assert region.occupied == taken
