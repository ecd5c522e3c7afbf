"""Runs the threads of a block one at a time, in order, each until it ends or must wait for others; those of all blocks
where blocks wait for each other.

A kernel without barriers is one plain loop. Where a CUDA thread waits, the greenlet that runs it is left as it is, and
another one carries on. All are of the calling Python thread, so nothing here needs a lock, and every run of a kernel
takes the same course. (A Python thread for each takes 4 to 7 times as long to pass its turn on. The `BlockManager` of
Numba's simulator starts one for each CUDA thread, waiting or not, and polls them.)

Like the hardware, a barrier counts threads that have ended as arrived. Where all that are left wait for each other in
vain, a GPU hangs; here it is an error. This module must not know arrays or graphs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

WARP = 32


class Place(NamedTuple):
    """An index or an extent in three dimensions."""

    x: int
    y: int
    z: int


class Block:
    """A block that runs.

    Attributes
    ----------
    index : Place
        ``blockIdx``.
    running : set of int
        Ranks of the threads that have not ended.
    """

    __slots__ = ("index", "running")

    def __init__(self, index: Place) -> None:
        self.index = index
        self.running: set[int] = set()


class Thread:
    """A CUDA thread of a block.

    Attributes
    ----------
    index : Place
        ``threadIdx``.
    rank : int
        Number in the block, x fastest.
    block : Block
        The block it belongs to.
    fiber : greenlet.greenlet or None
        What goes on with it when it is its turn, while it waits.
    answer : dict
        What the threads that it met brought, by rank.
    """

    __slots__ = ("answer", "block", "fiber", "index", "rank")

    def __init__(self, index: Place, rank: int, block: Block) -> None:
        self.index = index
        self.rank = rank
        self.block = block
        self.fiber: greenlet | None = None
        self.answer: dict[Any, Any] = {}


class ThreadError(Exception):
    """A CUDA thread failed, for the reason in ``__cause__``.

    Attributes
    ----------
    thread, block : tuple of int
        Indices, x first.
    """

    def __init__(self, thread: Place, block: Place) -> None:
        super().__init__(f"thread {tuple(thread)} of block {tuple(block)}")
        self.thread = tuple(thread)
        self.block = tuple(block)


class BarrierError(Exception):
    """Threads wait for each other in vain."""


class _Abandoned(BaseException):
    """Unwinds a CUDA thread whose block has failed elsewhere."""


class Scheduler:
    """Runs the blocks of one launch.

    Parameters
    ----------
    call : callable
        What a thread does: the kernel with its arguments.
    dims : Place
        Threads in a block.

    Attributes
    ----------
    current : Thread
        The thread that runs.
    """

    def __init__(self, call: Callable[[], Any], dims: Place) -> None:
        self._call = call
        self._places = [Place(x, y, z) for z in range(dims.z) for y in range(dims.y) for x in range(dims.x)]
        self._blocks = [Block(Place(0, 0, 0))]
        self._threads = self._threads_of(self._blocks[0])
        self.current = self._threads[0]
        self._closed = False
        self._begin([Place(0, 0, 0)])

    def _threads_of(self, block: Block) -> list[Thread]:
        return [Thread(place, rank, block) for rank, place in enumerate(self._places)]

    def _begin(self, indices: Sequence[Place]) -> None:
        if len(indices) != len(self._blocks):
            self._blocks = [Block(index) for index in indices]
            self._threads = [thread for block in self._blocks for thread in self._threads_of(block)]
        for block, index in zip(self._blocks, indices):
            block.index = index
            block.running = set(range(len(self._places)))
        self._unstarted = deque(self._threads)
        self._running = set(self._threads)
        self._ready: deque[Thread] = deque()
        self._meetings: dict[Any, _Meeting] = {}
        self._last: list[Thread] = []

    def run(self, *blocks: Place) -> None:
        """Run one block to its end, or several at once, whose threads can wait for each other.

        Raises
        ------
        ThreadError
            If a thread raised, or waits in vain.
        """
        self._begin(blocks)
        while self._running:
            fiber = self._next()
            try:
                fiber.switch()
            except Exception as problem:
                raise self._error() from problem

    def close(self) -> None:
        """Unwind CUDA threads that still wait, after a failure or an interrupt."""
        self._closed = True
        for thread in self._threads:
            if thread.fiber is not None:
                thread.fiber.throw(_Abandoned)

    def meet(self, scope: Any, value: Any = None, members: Collection[int] | None = None) -> dict[int, Any]:
        """Wait until the other running threads of the block that belong to a scope come here too.

        Parameters
        ----------
        scope : hashable
            Names the meeting.
        value : object
            What the thread brings.
        members : collection of int, optional
            Ranks of the threads that belong to it; the whole block by default.

        Returns
        -------
        dict
            What each thread brought, by rank.
        """
        thread = self.current
        key = (thread.block, scope)
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = _Meeting(thread.block.running, members)
        meeting.arrived[thread.rank] = (thread, value)
        self._sleep(thread)
        return thread.answer

    def meet_all(self) -> None:
        """Wait until all threads of all blocks that run at once come here too.

        Raises
        ------
        BarrierError
            If some have ended: what the others then do is undefined, and on a GPU they may wait for ever.
        """
        thread = self.current
        meeting = self._meetings.setdefault("all", _Meeting(self._running, None))
        meeting.arrived[thread] = (thread, None)
        self._sleep(thread)
        ended = len(self._threads) - len(thread.answer)
        if ended:
            raise BarrierError(f"a thread waits for the whole grid, and {ended} threads of it have ended")

    def let_others_go_first(self, action: Callable[[], Any]) -> None:
        """Wait until no other thread of the block can go on, and ``action`` has been called.

        Threads that wait so at the same time go on after the same call, which is that of the first. Those of a warp are
        enough to wait for each other: a block may be large.

        Parameters
        ----------
        action : callable
            What it raises ends the launch, and is raised by `run` as it is.
        """
        thread = self.current
        self._action = action
        self._last.append(thread)
        self._sleep(thread)

    def is_running(self, rank: int) -> bool:
        """True if the block of the current thread has one of that rank, and it has not ended."""
        return rank in self.current.block.running

    def _sleep(self, thread: Thread) -> None:
        """Let others go on, until it is the thread's turn again."""
        if self._closed:
            raise _Abandoned
        thread.fiber = fiber = getcurrent()
        fiber.parent.switch()
        thread.fiber = None

    def _start_threads(self) -> None:
        """Run threads that have not started, one after the other, until none is left."""
        call, unstarted, running = self._call, self._unstarted, self._running
        try:
            while unstarted:
                self.current = thread = unstarted.popleft()
                call()
                running.discard(thread)
                thread.block.running.discard(thread.rank)
        except _Abandoned:
            return
        except Exception:
            if not self._closed:  # what comes of being unwound is nobody's concern
                raise

    def _next(self) -> greenlet:
        """What goes on: threads that have not started, then those that wait for nobody."""
        if len(self._last) == WARP:
            self._let_last_go()
        if self._unstarted:
            fiber = greenlet(self._start_threads)
            fiber.gr_context = copy_context()  # NumPy is told there which floating-point errors to ignore
            return fiber
        if not self._ready:
            self._hold_meetings()
        if not self._ready and self._last:
            self._let_last_go()
        if not self._ready:
            waiting = f"{len(self._running)} threads wait for others that never come"
            raise self._error() from BarrierError(waiting)
        self.current = thread = self._ready.popleft()
        assert thread.fiber is not None
        return thread.fiber

    def _error(self) -> ThreadError:
        return ThreadError(self.current.index, self.current.block.index)

    def _let_last_go(self) -> None:
        """Do what some threads wait for that others go before."""
        last, self._last = self._last, []
        self._action()
        self._ready.extend(last)

    def _hold_meetings(self) -> None:
        """Answer every meeting for which nobody is missing."""
        for scope, meeting in list(self._meetings.items()):
            if not meeting.is_awaited():
                del self._meetings[scope]
                answer = {key: value for key, (_, value) in meeting.arrived.items()}
                for thread, _ in meeting.arrived.values():
                    thread.answer = answer
                    self._ready.append(thread)


class _Meeting:
    """Threads that wait for each other: those of ``running`` that are ``members``, all by default."""

    __slots__ = ("_members", "_running", "arrived")

    def __init__(self, running: Collection[Any], members: Collection[Any] | None) -> None:
        self._running = running
        self._members = members
        self.arrived: dict[Any, tuple[Thread, Any]] = {}

    def is_awaited(self) -> bool:
        """True if a running thread that belongs here has not come."""
        if self._members is None:
            return len(self.arrived) < len(self._running)
        return any(member in self._running and member not in self.arrived for member in self._members)
