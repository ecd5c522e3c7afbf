"""Launches that have not ended: they follow each other in their stream, and so do those of one exec in any stream.

A launch runs at once, in the thread that asked for it. One that calls host nodes, or that follows such a launch, is
left to a thread of its stream, as on a GPU: a host node may wait for whatever the program does next, and other threads
go on meanwhile. This module must not know nodes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.gate import Gate
from graphdsl.forks import tell_of_forks


class Launch:
    """A launch that was left to a thread.

    Attributes
    ----------
    done : bool
        True once it has ended.
    """

    __slots__ = ("_behind", "_run", "done")

    def __init__(self, run: Callable[[], None], behind: Launch | None) -> None:
        self._run: Callable[[], None] | None = run
        self._behind = behind
        self.done = False

    @property
    def is_next(self) -> bool:
        """True if what it follows has ended."""
        return self._behind is None or self._behind.done

    def run(self) -> None:
        """Run it to its end, and keep nothing: whoever asks whether it is done may do so for long."""
        assert self._run is not None
        self._run()
        self._run = self._behind = None
        self.done = True


class InFlight:
    """The launches of one device that have not ended. All methods are called inside of the gate.

    Parameters
    ----------
    gate : Gate
        Open while this waits, and while a host node runs.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._streams: dict[Handle, deque[Launch]] = {}  # those that a thread is at work for, and only those
        tell_of_forks(self)

    def last(self, stream: Handle) -> Launch | None:
        """The last launch in a stream; None if all have ended."""
        launches = self._streams.get(stream)
        return launches[-1] if launches else None

    def wait(self, launch: Launch | None) -> None:
        """Wait until a launch has ended."""
        self._gate.wait_until(lambda: launch is None or launch.done)

    def leave(self, stream: Handle, run: Callable[[], None], behind: Launch | None) -> Launch:
        """Leave a launch to the thread of its stream.

        Parameters
        ----------
        stream : int
            It follows the launches there.
        run : callable
            Runs it, inside of the gate; raises nothing.
        behind : Launch or None
            Another one that it follows.
        """
        made = Launch(run, behind)
        launches = self._streams.get(stream)
        if launches is None:
            launches = self._streams[stream] = deque()
            threading.Thread(target=self._work, args=(stream,), name="graphdsl emulator stream", daemon=True).start()
        launches.append(made)
        return made

    def _work(self, stream: Handle) -> None:
        with self._gate.held():
            launches = self._streams[stream]
            while launches:
                self._gate.wait_until(lambda: launches[0].is_next)
                launches[0].run()
                launches.popleft()
                self._gate.announce()
            del self._streams[stream]

    def after_fork(self) -> None:
        """Forget what was in flight: the threads that are at work for it are not in this process."""
        for launches in self._streams.values():
            for launch in launches:
                launch.done = True
        self._streams.clear()
