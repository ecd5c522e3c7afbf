"""What an engine launches: the graph of a step in the smallest bucket of rows, and that of a part of a prompt.

All of them are in one cache, and run one after the other in its stream. Launch k, whichever it is, uses row
``k % RING`` of the pinned arrays that its graph has. The host writes what the launch is for into that row, marks what
it will make as not there yet, and launches; later it looks whether the marks are gone. No launch waits for the host,
nor the host for a launch, but for its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphdsl as gd

from .engine_graphs import RING, Room, engine_graph, engine_prompt_graph, request, state_arrays, weight_arrays
from .generate import Progress, polling
from .memory import arena
from .model import BUCKETS
from .weights import Config, Weights

BATCHES = (1, 2, 4, 8, 16, 32)
"""Rows that a graph for a step has room for."""

_PENDING = -2  # where a launch has not written its token yet: a token, or -1 for none, takes its place


@dataclass(frozen=True)
class Sampling:
    """How the tokens of a request are chosen: as `engine_graphs.request` takes it."""

    temperature: float = 0.0
    top_k: int = 40
    seed: int = 0
    stop: int = -1


@dataclass(frozen=True)
class Built:
    """A graph that can be launched.

    Attributes
    ----------
    exe : GraphExec
    size : int
        Rows of steps, or tokens of prompts, that it has room for.
    is_step : bool
    arrays : dict of str to numpy.ndarray
        Its pinned memory, by name.
    """

    exe: Any
    size: int
    is_step: bool
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, exe: Any, size: int, is_step: bool) -> Built:
        rings = ("slots",) if is_step else ("prompt", "request")
        return cls(exe, size, is_step, {name: exe[name] for name in (*rings, "tokens", "states")})


@dataclass(frozen=True)
class Flight:
    """A launch.

    Attributes
    ----------
    tokens, states : numpy.ndarray
        Pinned memory, where it writes them, by row.
    built : Built
    """

    tokens: np.ndarray
    states: np.ndarray
    built: Built


class Launches:
    """The graphs of an engine on a device.

    Parameters
    ----------
    config : Config
    room : Room
    device : Driver
    weights, state : mapping of str to DeviceArray
        As the graphs name them.
    batches, prompts : sequence of int
        The buckets: rows of steps, and tokens of prompts.
    step_graph, prompt_graph : callable
        What declares them, from ``config``, a number of rows, ``room`` and ``memory``.
    progress : callable, optional
        See `generate.Progress`.

    Attributes
    ----------
    weights, state : dict of str to DeviceArray
        What the graphs use now.
    cache : GraphCache
        All graphs, on one axis: steps by their rows, and behind the largest of them prompts by their tokens.
    """

    ring = RING

    def __init__(
        self,
        config: Config,
        room: Room,
        device: Any,
        weights: Mapping[str, Any],
        state: Mapping[str, Any],
        *,
        batches: Sequence[int] = BATCHES,
        prompts: Sequence[int] = BUCKETS,
        step_graph: Callable[..., gd.Graph] = engine_graph,
        prompt_graph: Callable[..., gd.Graph] = engine_prompt_graph,
        progress: Progress = lambda graph, done, total: None,
    ) -> None:
        self.config = config
        self.room = room
        self.device = device
        self.batches = tuple(size for size in batches if size <= room.slots)
        self.prompts = tuple(prompts)
        self.longest = self.prompts[-1]
        self.weights = dict(weights)
        self.state = dict(state)
        self._step_graph, self._prompt_graph = step_graph, prompt_graph
        self._progress = progress
        self._count = 0  # launches, as the device counts them
        self._last: Built | None = None  # launched last
        self._graphs: dict[int, Built] = {}
        sizes = [*self.batches, *(self.batches[-1] + size for size in self.prompts)]
        self.cache = gd.GraphCache(self._declared, gd.Buckets(rows=sizes), device, observer=gd.Metrics("engine"))

    @classmethod
    def of(cls, weights: Weights, device: Any, room: Room, **options: Any) -> Launches:
        """Those of a model, in memory that is made for it: weights in one block, and the state in another."""
        blocks = (
            arena(device, arrays) for arrays in (weight_arrays(weights, room), state_arrays(weights.config, room))
        )
        return cls(weights.config, room, device, *blocks, **options)

    def _declared(self, rows: int) -> gd.Graph:
        """The graph of a bucket of the cache."""
        is_step = rows <= self.batches[-1]
        declare, size = (self._step_graph, rows) if is_step else (self._prompt_graph, rows - self.batches[-1])
        graph = declare(self.config, size, self.room, self.weights | self.state)
        graph.compile(self.device, progress=lambda done, total, _: self._progress(graph.name, done, total))
        return graph

    def warm_up(self) -> None:
        """Build all graphs, so that no request waits for one."""
        self.cache.warm_up()

    def step(self, slots: Sequence[int]) -> Flight:
        """Launch a step of the requests in some slots, whose prompts have been launched."""

        def asked(arrays: Mapping[str, np.ndarray], row: int) -> None:
            arrays["slots"][row, : len(slots)] = slots
            arrays["slots"][row, len(slots) :] = self.room.scrap_slot

        return self._launched(len(slots), asked, len(slots))

    def prompt(
        self, slot: int, start: int, tokens: Sequence[int], final: bool, limit: int, sampling: Sampling
    ) -> Flight:
        """Launch a part of a prompt, the first of which has the position ``start``; a token follows the final one."""
        words = request(slot, start, len(tokens), final=final, limit=limit, **vars(sampling))

        def asked(arrays: Mapping[str, np.ndarray], row: int) -> None:
            arrays["prompt"][row, : len(tokens)] = tokens
            arrays["request"][row] = words

        return self._launched(self.batches[-1] + len(tokens), asked)

    def cancel(self, slot: int) -> Flight:
        """Launch what takes back all that the request in a slot holds."""

        def asked(arrays: Mapping[str, np.ndarray], row: int) -> None:
            arrays["request"][row] = request(slot, 0, 0, limit=0)

        return self._launched(self.batches[-1] + 1, asked)

    def _launched(self, rows: int, asked: Callable[[Mapping[str, np.ndarray], int], None], shown: int = 1) -> Flight:
        """Launch the graph for so many rows, behind what ``asked`` writes into a row of its arrays."""
        with self.cache(rows=rows) as run:
            built = self._built(run.exec, run.bucket["rows"])
            row = self._count % RING
            asked(built.arrays, row)
            tokens, states = (built.arrays[name][row, :shown] for name in ("tokens", "states"))
            tokens.fill(_PENDING)
            self._run(run, built)
        self._count += 1
        self._last = built
        return Flight(tokens, states, built)

    def _built(self, exe: Any, rows: int) -> Built:
        """An exec of the cache with its arrays, which are asked for once."""
        built = self._graphs.get(rows)
        if built is None or built.exe is not exe:
            is_step = rows <= self.batches[-1]
            built = self._graphs[rows] = Built.of(exe, rows if is_step else rows - self.batches[-1], is_step)
        return built

    def _run(self, run: Any, built: Built) -> None:
        run.launch()

    def landed(self, flight: Flight) -> tuple[list[int], list[int]]:
        """The tokens and states that a launch made, by row, once it has made them.

        Raises
        ------
        DriverError
            If a launch failed.
        """
        for _ in polling(flight.built.exe):
            tokens = flight.tokens.tolist()
            if _PENDING not in tokens:
                break
        return tokens, flight.states.tolist()  # which were written before the tokens

    def swap(self, weights: Mapping[str, Any]) -> None:
        """Let the launches from now on use other weights; those in flight end with what they began with."""
        self.cache.swap(weights)
        self.weights = {**self.weights, **weights}

    def synchronize(self) -> None:
        """Wait for all launches."""
        if self._last is not None:
            self._last.exe.synchronize()

    def close(self) -> None:
        """Wait for all launches, and give back the graphs."""
        self.synchronize()
        self._graphs.clear()
        self._last = None
        self.cache.close()
