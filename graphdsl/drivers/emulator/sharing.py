"""Memory that other nodes have the use of before the first and after the last of the nodes that use it.

At both ends of that time it becomes memory that nobody has written. So a node that reads what it should not, because
nothing wrote it in this launch or because something else had the bytes meanwhile, is found. This module must not know
who decided what shares bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.emulator.memory import AddressSpace


class Shared(NamedTuple):
    """A piece of memory.

    Attributes
    ----------
    address, nbytes : int
        Where, and how much.
    users : sequence of int
        Handles of the nodes that use it.
    """

    address: Address
    nbytes: int
    users: Sequence[Handle]


class Sharing:
    """What is in use in one launch; in a ``with`` statement, all is given up at the end.

    Examples
    --------
    >>> from graphdsl.drivers.emulator.memory import AddressSpace
    >>> space = AddressSpace(1024)
    >>> region = space.allocate(8)
    >>> with Sharing([Shared(region.base, 8, (1, 2))], space) as sharing:
    ...     for node in (1, 2):
    ...         sharing.begin(node)
    ...         space.writing(region.base, 8)[:] = node
    ...         sharing.end(node)
    ...         print(int(region.written.sum()))
    8
    0
    """

    def __init__(self, shared: Iterable[Shared], space: AddressSpace) -> None:
        self._space = space
        self._shared = list(shared)
        self._left = [len(each.users) for each in self._shared]
        self._begun: set[int] = set()
        self._used: dict[Handle, list[int]] = {}
        for number, each in enumerate(self._shared):
            for user in each.users:
                self._used.setdefault(user, []).append(number)

    def begin(self, node: Handle) -> None:
        """Note that a node starts."""
        for number in self._used.get(node, ()):
            if number not in self._begun:
                self._begun.add(number)
                self._discard(number)

    def end(self, node: Handle) -> None:
        """Note that a node has ended, or is left out."""
        for number in self._used.get(node, ()):
            self._left[number] -= 1
            if not self._left[number] and number in self._begun:
                self._begun.discard(number)
                self._discard(number)

    def _discard(self, number: int) -> None:
        self._space.discard(self._shared[number].address, self._shared[number].nbytes)

    def __enter__(self) -> Sharing:
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._begun:
            self._discard(number)
