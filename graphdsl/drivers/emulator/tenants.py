"""Memory that several execs have by turns: what one left there is not for the others.

This module must not know who decided that.
"""

from __future__ import annotations

from typing import NamedTuple

from graphdsl.drivers.base import Address
from graphdsl.drivers.emulator.memory import AddressSpace
from graphdsl.drivers.emulator.problems import GONE, AccessError


class Tenancy(NamedTuple):
    """Whose memory it is while it is used.

    Attributes
    ----------
    address, nbytes : int
        Where, and how much.
    tenant : int
        The number of whoever uses it.
    """

    address: Address
    nbytes: int
    tenant: int

    @property
    def end(self) -> Address:
        """The address behind the last byte."""
        return self.address + self.nbytes


class Tenants:
    """Who used memory last.

    Examples
    --------
    >>> space = AddressSpace(1024)
    >>> region = space.allocate(8)
    >>> tenants = Tenants(space)
    >>> for tenant in (1, 1, 2):
    ...     tenants.enter(Tenancy(region.base, 8, tenant), writes=True)
    ...     print(int(region.written.sum()))
    ...     space.writing(region.base, 8)[:] = tenant
    0
    8
    0
    """

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._last: dict[Address, Tenancy] = {}

    def enter(self, tenancy: Tenancy, *, writes: bool) -> None:
        """Note a use: the first of a tenant after that of another one forgets all that was written.

        Raises
        ------
        AccessError
            If it only reads, and the memory was another one's meanwhile.
        """
        if self._last.get(tenancy.address) == tenancy:
            return
        others = [each for each in self._last.values() if each.address < tenancy.end and tenancy.address < each.end]
        if not writes:
            if others:
                text = f"the {tenancy.nbytes} bytes of the arena at {tenancy.address:#x}"
                raise AccessError(GONE, text, address=tenancy.address, nbytes=tenancy.nbytes)
            return
        self._space.discard(tenancy.address, tenancy.nbytes)
        left = (each for each in self._last.values() if each not in others and self._is_there(each))
        self._last = {each.address: each for each in left}
        self._last[tenancy.address] = tenancy

    def _is_there(self, tenancy: Tenancy) -> bool:
        region = self._space.find(tenancy.address)
        return region is not None and region.alive
