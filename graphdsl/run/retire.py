"""Keeps what an update replaced until the last launch that could use it is done, and no longer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from graphdsl.drivers.base import Driver, Handle
from graphdsl.drivers.results import is_fault
from graphdsl.errors import DriverError
from graphdsl.forks import Lock

_MOST_SPARE = 64  # a launch that takes long lets many wait at once; their number must not stay


class Retired:
    """Releases, in the order in which they became due.

    An event marks the end of the launches so far, so that nothing waits: each call releases what is done by then.
    Events are used again, so that memory stays flat over any number of updates.
    """

    def __init__(self, device: Driver) -> None:
        self._device = device
        self._waiting: deque[tuple[Handle, list[Callable[[], None]]]] = deque()
        self._unmarked: list[Callable[[], None]] = []  # the driver gave no event for these: the next one is theirs too
        self._spare: list[Handle] = []
        self._problem: DriverError | None = None
        self._lock = Lock()  # one thread may update while another one waits, and each looks for what is due

    def add(self, releases: list[Callable[[], None]], stream: Handle | None) -> None:
        """Run ``releases`` once the work now in ``stream`` is done; at once if ``stream`` is None.

        Whoever calls has changed something, and cannot take it back: so nothing is refused. What is heard of launches
        is told by the next `poll`, and what no event marks is kept until a later one does, or `waited` says so.
        """
        self.look()
        if stream is None:
            _run(releases)
            return
        with self._lock:
            self._unmarked += releases
            if self._mark(stream):
                return
        # A stream of another device takes no event of this one, so there is nothing for it but to wait.
        try:
            self._device.stream_synchronize(stream)
        except DriverError as problem:
            self._note(problem)
        else:
            self.waited()

    def _mark(self, stream: Handle) -> bool:
        """Let an event mark the end of what is in a stream; False if the stream takes none."""
        event = None
        try:
            event = self._spare.pop() if self._spare else self._device.event_create()
            self._device.event_record(event, stream)
        except DriverError as problem:
            if event is not None:
                self._spare.append(event)
            return event is None or problem.code_name != "CUDA_ERROR_INVALID_HANDLE"
        self._waiting.append((event, self._unmarked))
        self._unmarked = []
        return True

    def waited(self) -> None:
        """Release what no event marks: no launch is in flight."""
        with self._lock:
            releases, self._unmarked = self._unmarked, []
        _run(releases)

    @property
    def waiting(self) -> bool:
        """True if something is not due yet, as far as the last look has shown."""
        return bool(self._waiting or self._unmarked)

    def look(self) -> None:
        """Release what is due; what is heard of launches is told by the next `poll`."""
        try:
            self.poll()
        except DriverError as problem:
            self._note(problem)

    def _note(self, problem: DriverError) -> None:
        if is_fault(problem):  # an emulator tells of one once; all else is as if nobody had asked
            self._problem = problem

    def poll(self) -> None:
        """Release what is due.

        Raises
        ------
        DriverError
            What went wrong in launches, if that is heard here, or was before.
        """
        problem, self._problem = self._problem, None
        try:
            if problem is not None:
                raise problem
        finally:
            del problem  # else its traceback, which has this frame, would keep it and all that called
        while True:
            with self._lock:
                if not self._waiting or not self._device.event_query(self._waiting[0][0]):
                    return
                releases = self._take_first()
            _run(releases)

    def close(self) -> None:
        """Release everything and give the events back: no launch is in flight."""
        while self._waiting:
            _run(self._take_first())
        self.waited()
        while self._spare:
            self._device.event_destroy(self._spare.pop())

    def _take_first(self) -> list[Callable[[], None]]:
        event, releases = self._waiting.popleft()
        if len(self._spare) < _MOST_SPARE:
            self._spare.append(event)
        else:
            self._device.event_destroy(event)
        return releases


def _run(releases: list[Callable[[], None]]) -> None:
    for release in releases:
        release()
