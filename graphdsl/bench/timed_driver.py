"""A driver that notes how long its functions take, so that a build can be told apart into ours and the driver's.

It goes in where a device goes in. This module must not change what the driver does.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from graphdsl.bench.measure import Clock

_EMISSION = ("graph_create", "graph_add_", "graph_kernel_node_")


class TimedDriver:
    """Passes everything on to another driver.

    Parameters
    ----------
    device : Driver
        What it passes on to.
    clock : callable
        Gives nanoseconds.

    Attributes
    ----------
    spent : dict of str to float
        Microseconds in each method since the last `reset`.
    last : dict of str to object
        What each method gave last.
    """

    def __init__(self, device: Any, clock: Clock = time.perf_counter_ns) -> None:
        self._device = device
        self._clock = clock
        self.spent: dict[str, float] = defaultdict(float)
        self.last: dict[str, Any] = {}

    def reset(self) -> None:
        """Forget the times so far."""
        self.spent.clear()

    @property
    def total(self) -> float:
        """Microseconds in the driver."""
        return sum(self.spent.values())

    @property
    def emission(self) -> float:
        """Microseconds in the calls that make a graph, its nodes and its edges."""
        return sum(time for name, time in self.spent.items() if name.startswith(_EMISSION))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._device, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            start = self._clock()
            try:
                self.last[name] = found(*args, **options)
                return self.last[name]
            finally:
                self.spent[name] += (self._clock() - start) / 1e3

        self.__dict__[name] = call  # the next time it is found without coming here
        return call
