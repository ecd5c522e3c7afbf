"""The devices that a graph is to run on, as far as checks must know them: what each can do, and what it reaches.

This module must not ask any device.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from graphdsl.declare.limits import DEFAULT_CAPABILITY, Limits, Target, limits_of


@dataclass(frozen=True)
class Targets:
    """The devices of a computer that a graph is about.

    Attributes
    ----------
    home : int
        Number of the device that the graph is instantiated on.
    limits : dict of int to Limits
        What each device can do; a device that is not there has no entry.
    apart : frozenset of pairs of int
        Devices that do not reach the memory of another one: which, and whose.
    count : int or None
        How many devices the computer has; None where any number will do.
    """

    home: int
    limits: Mapping[int, Limits]
    apart: frozenset[tuple[int, int]] = frozenset()
    count: int | None = None

    def number(self, device: int | None) -> int:
        """The number of a device as nodes and memory have it, where None stands for ``home``."""
        return self.home if device is None else device

    def limits_of(self, device: int | None) -> Limits:
        """What a device can do; for one that is not there, what ``home`` can do."""
        return self.limits.get(self.number(device), self.limits[self.home])

    def name(self, device: int | None) -> str:
        """What messages call a device.

        Examples
        --------
        >>> targets_of(["sm_90", "sm_80"], [None, 1]).name(1)
        'device 1 (sm_80)'
        """
        number = self.number(device)
        limits = self.limits.get(number)
        return f"device {number}" if limits is None else f"device {number} ({limits.name})"

    @property
    def several(self) -> bool:
        """True unless all is on one device."""
        return len(self.limits) > 1

    @property
    def title(self) -> str:
        """What reports call all of them."""
        return ", ".join(map(self.name, sorted(self.limits))) if self.several else self.limits[self.home].name


def targets_of(target: Target | list[Target] | Targets | None, devices: Collection[int | None] = ()) -> Targets:
    """The targets that a user means.

    Parameters
    ----------
    target : str, tuple of int, Limits, list of these, or Targets
        One that all devices are like, however many there are; or a list with one for each device, the first of which
        the graph is instantiated on. ``"sm_90"`` by default.
    devices : collection of int or None
        The devices that the graph is about, as `Definition.devices` has them.

    Raises
    ------
    DeclarationError
        If a target is not known.
    """
    if isinstance(target, Targets):
        return target
    numbers = {0, *(number for number in devices if number is not None)}
    if not isinstance(target, list) or not target:
        limits = limits_of(DEFAULT_CAPABILITY if target is None or isinstance(target, list) else target)
        return Targets(0, dict.fromkeys(sorted(numbers), limits))
    every = [limits_of(each) for each in target]
    return Targets(0, {number: every[number] for number in sorted(numbers) if number < len(every)}, count=len(every))
