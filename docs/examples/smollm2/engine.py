"""An engine with continuous batching: many requests are answered at a time, and each comes and goes when it will.

A turn of the engine launches a few graphs and takes in the tokens of one. A step is one launch, for as many requests as
are served then; a request joins by a launch of its prompt between two steps, and leaves by not being in the next one.
What a launch needs lies in memory of its own (see `launches`), so launches run ahead of the tokens that are read,
whoever joins and leaves: the device does not wait for Python.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import graphdsl as gd

from .launches import Flight, Launches, Sampling
from .scheduler import Scheduler

AHEAD = 3
"""Launches of steps that are in flight at a time. More would let a new request wait longer, and gain nothing."""

PROMPTS = 4
"""Launches of prompts between two steps, at most: how long those who are served wait for those who join."""

RUNNING, STOPPED, FULL = 1, 2, 3  # what a launch says of a request behind its token
_ENDINGS = {STOPPED: "stop", FULL: "length"}


@dataclass(eq=False)
class Answer:
    """A request, and what has been answered so far.

    Attributes
    ----------
    prompt : tuple of int
    most : int
        Tokens of the answer, at most.
    sampling : Sampling
    tokens : list of int
        The answer; a token that stops it is the last one.
    times : list of float
        When each token came, on the clock of the engine.
    submitted, admitted : float
        When the request was made, and when it was given its place; the latter is not a number until then.
    ending : str
        ``"length"``, ``"stop"``, ``"cancelled"`` or ``"closed"``; empty while more tokens will come.
    """

    prompt: tuple[int, ...]
    most: int
    sampling: Sampling
    submitted: float
    admitted: float = float("nan")
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    ending: str = ""
    slot: int = -1
    launched: int = 0  # tokens that launches so far will bring
    processed: int = 0  # tokens of the prompt that are launched


class Engine:
    """Requests, and the turns in which they are answered.

    Whoever wants tokens drives it: `stream` and `run` take turns as long as they want more. Threads may do so at the
    same time: a turn is taken by one of them, and the tokens of all requests come of it.

    Parameters
    ----------
    launches : Launches
        What launches the graphs. The engine closes it.
    waiting : int
        Requests that may wait for a place; one more is refused with `scheduler.Busy`.
    ahead, prompts : int
        See `AHEAD` and `PROMPTS`.
    clock : callable
        The time in seconds.

    Attributes
    ----------
    counts : dict of str to int
        ``steps`` and ``prompts`` launched, and ``places`` in the buckets of the steps, those for padding included.
    batches : Counter of int
        How many steps there were for each number of requests.
    """

    def __init__(
        self,
        launches: Launches,
        *,
        waiting: int = 1024,
        ahead: int = AHEAD,
        prompts: int = PROMPTS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        room = launches.room
        self.launches = launches
        self.config = launches.config
        self.scheduler = Scheduler(room.slots, room.pages - 1, room.page_size, room.context, waiting)
        self.ahead = ahead
        self.prompts = prompts
        self.clock = clock
        self.counts = dict.fromkeys(("steps", "prompts", "places"), 0)
        self.batches: Counter[int] = Counter()
        self._joining: deque[Answer] = deque()  # admitted, with some of their prompts still to launch
        self._running: dict[int, Answer] = {}  # by slot: those that are in the next step
        self._flights: deque[tuple[Flight, tuple[Answer, ...]]] = deque()
        self._steps_ahead = 0
        self._prompts_since = 0  # the last step
        self._open: set[Answer] = set()  # those without an ending
        self._turns = threading.RLock()
        self._closed = False

    # Requests

    def submit(
        self,
        prompt: Sequence[int],
        most: int,
        *,
        temperature: float = 0.0,
        top_k: int = 40,
        seed: int = 0,
        stop: int | None = None,
    ) -> Answer:
        """Ask for an answer; it is given in the turns that follow.

        Parameters
        ----------
        prompt : sequence of int
            Tokens, at least one.
        most : int
            Tokens of the answer, at most; at least one.
        temperature, top_k, seed
            How tokens are chosen; a temperature of 0 takes the most probable.
        stop : int, optional
            A token that ends the answer.

        Raises
        ------
        GraphdslError
            If it can never be answered: there is no prompt, or prompt and answer are longer than the engine has room
            for.
        scheduler.Busy
            If too many requests wait.
        """
        for name, count in (("prompt", len(prompt)), ("most", most)):
            if count < 1:
                raise gd.GraphdslError(
                    "a request has one token of prompt and one of the answer at least",
                    field=name,
                    value=count,
                    remedy="Say something, and ask for a token.",
                )
        sampling = Sampling(temperature, top_k, seed, -1 if stop is None else stop)
        with self._turns:
            self._require_open()
            answer = Answer(tuple(prompt), most, sampling, self.clock())
            self.scheduler.submit(answer, len(answer.prompt) + most)
            self._open.add(answer)
            return answer

    def cancel(self, answer: Answer) -> None:
        """End an answer where it is. The tokens it has stay; those that are in flight are dropped."""
        with self._turns:
            self._require_open()
            if answer.ending:
                return
            on_device = answer.processed > 0 and answer in self.scheduler
            self._end(answer, "cancelled")
            if on_device:
                self._flights.append((self.launches.cancel(answer.slot), ()))

    def stream(self, answer: Answer) -> Iterator[int]:
        """The tokens of an answer, each as soon as it is there; turns are taken while there is none."""
        told = 0
        while True:
            while told < len(answer.tokens):
                yield answer.tokens[told]
                told += 1
            if answer.ending:
                return
            with self._turns:
                if told == len(answer.tokens) and not answer.ending:
                    self.turn()

    def run(self) -> None:
        """Take turns until nothing is left to do."""
        while self.busy:
            self.turn()

    def drain(self) -> None:
        """Take in what is in flight, and launch nothing."""
        with self._turns:
            while self._flights:
                self._land()

    @property
    def busy(self) -> bool:
        """Whether there is something to do: requests to be answered, or launches in flight."""
        return bool(self._open or self._flights)

    # Turns

    def turn(self) -> int:
        """Launch what is to be launched, and take in what the oldest launch in flight made; how many tokens it made.

        Raises
        ------
        DriverError
            If a launch failed; the engine cannot go on then.
        """
        with self._turns:
            self._require_open()
            self._join()
            while self._running and self._steps_ahead < self.ahead:
                self._step()
            return self._land() if self._flights else 0

    def _join(self) -> None:
        """Admit requests, and launch what comes next of their prompts: a few, since those who are served wait."""
        for answer, place in islice(self.scheduler.admitted(), max(0, self.prompts - len(self._joining))):
            answer.slot, answer.admitted = place.slot, self.clock()
            self._joining.append(answer)
        while self._joining and len(self._flights) < self.launches.ring // 2:
            if self._running and self._prompts_since >= self.prompts:
                return
            self._prompt(self._joining[0])

    def _prompt(self, answer: Answer) -> None:
        part = answer.prompt[answer.processed : answer.processed + self.launches.longest]
        final = answer.processed + len(part) == len(answer.prompt)
        limit = len(answer.prompt) + answer.most
        flight = self.launches.prompt(answer.slot, answer.processed, part, final, limit, answer.sampling)
        self._flights.append((flight, (answer,) if final else ()))
        self.counts["prompts"] += 1
        self._prompts_since += 1
        answer.processed += len(part)
        if final:
            self._joining.popleft()
            self._running[answer.slot] = answer
            self._count(answer)

    def _step(self) -> None:
        rows = tuple(self._running.values())
        flight = self.launches.step([answer.slot for answer in rows])
        self._flights.append((flight, rows))
        self._steps_ahead += 1
        self._prompts_since = 0
        self.counts["steps"] += 1
        self.counts["places"] += flight.built.size
        self.batches[len(rows)] += 1
        for answer in rows:
            self._count(answer)

    def _count(self, answer: Answer) -> None:
        """One token more is launched. Behind its last one a request has no place, which the device knows too."""
        answer.launched += 1
        if answer.launched == answer.most:
            self._release(answer)

    def _land(self) -> int:
        """Wait for the oldest launch in flight, and give its tokens to those they are for."""
        flight, rows = self._flights[0]
        tokens, states = self.launches.landed(flight)
        self._flights.popleft()
        self._steps_ahead -= flight.built.is_step
        now = self.clock()
        made = 0
        for answer, token, state in zip(rows, tokens, states):
            if answer.ending:  # stopped or cancelled while this launch was in flight
                continue
            if token < 0 or state not in (RUNNING, STOPPED, FULL):
                raise self._astray(answer, token, state)
            answer.tokens.append(token)
            answer.times.append(now)
            made += 1
            if state != RUNNING:
                self._end(answer, _ENDINGS[state])
        return made

    def _end(self, answer: Answer, ending: str) -> None:
        answer.ending = ending
        self._open.discard(answer)
        self._release(answer)

    def _release(self, answer: Answer) -> None:
        """Let a request be in no more launches, and its place be given to another one: those in flight come first."""
        if answer in self.scheduler:
            self.scheduler.leave(answer)
        if answer in self._joining:
            self._joining.remove(answer)
        if self._running.get(answer.slot) is answer:
            del self._running[answer.slot]

    def _astray(self, answer: Answer, token: int, state: int) -> gd.GraphdslError:
        return gd.GraphdslError(
            f"a launch has a token for each request that it serves, and none came for the one in slot {answer.slot}",
            field="state",
            value=f"{state}, token {token}",
            remedy="The pages that were counted and those on the device differ: nothing else may launch these graphs.",
        )

    # Weights and the end

    def swap(self, weights: Mapping[str, Any]) -> None:
        """Go on with other weights, from the next launch on; launches in flight end with those they began with.

        Parameters
        ----------
        weights : mapping of str to DeviceArray
            By the names of the operands, of the same shapes.
        """
        with self._turns:
            self._require_open()
            self.launches.swap(weights)

    def close(self) -> None:
        """Wait for the launches in flight, and give back the graphs; answers that are not whole end here."""
        with self._turns:
            if self._closed:
                return
            self._closed = True
            for answer in tuple(self._open):
                self._end(answer, "closed")
            self.launches.close()

    def _require_open(self) -> None:
        if self._closed:
            raise gd.GraphdslError("this engine is closed", field="engine", remedy="Make another one.")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
