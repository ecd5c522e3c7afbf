"""The execs of a model, and the loop over tokens: a prompt in parts, then one launch for each token."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import graphdsl as gd

from .memory import arena, contents
from .model import BUCKETS, CONTEXT, decode_graph, prompt_graph
from .weights import Weights

AHEAD = 8
"""Steps that are launched before the tokens of those in front have come: the device never waits for Python."""

_NONE = -1  # what stands in the pinned memory where no token has been written yet
_PATIENCE = 2.0  # seconds without a token after which the device is asked whether it failed

Progress = Callable[[str, int, int], None]
"""Called while kernels are compiled, with the name of the graph, how many are done, and how many there are."""


def parts(count: int) -> list[int]:
    """How many tokens of a prompt are processed at a time: as many as the largest graph has room for, then the rest.

    Examples
    --------
    >>> parts(600)
    [256, 256, 88]
    """
    most = BUCKETS[-1]
    return [min(most, count - done) for done in range(0, count, most)]


def bucket_of(count: int) -> int:
    """The smallest bucket that has room for so many tokens.

    Examples
    --------
    >>> bucket_of(16), bucket_of(17)
    (16, 32)
    """
    return next(rows for rows in BUCKETS if rows >= count)


def polling(launched: Any) -> Iterator[None]:
    """Turns to look whether launches have written something; one that failed says so in time.

    Parameters
    ----------
    launched : GraphExec
        Or what is used in its place.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        yield
        time.sleep(0)  # another thread may want the interpreter
        if time.monotonic() > deadline:
            launched.synchronize()
            deadline += _PATIENCE


class Generator:
    """A model on a device, with one conversation.

    Parameters
    ----------
    weights : Weights
    device : Driver
        Where it runs.
    context : int
        Tokens that the conversation has room for, those of the answers included.
    graphs : bool
        Launch each step as a graph; if not, the same kernels one by one, for comparison, which needs a GPU.
    progress : callable, optional
        See `Progress`.

    Attributes
    ----------
    position : int
        Tokens of the conversation that have been processed.
    """

    def __init__(
        self,
        weights: Weights,
        device: Any,
        context: int = CONTEXT,
        *,
        graphs: bool = True,
        progress: Progress = lambda graph, done, total: None,
    ) -> None:
        self.config = weights.config
        self.device = device
        self.context = context
        self.position = 0
        self._on_device = 0  # the position as the device has it: steps run ahead
        self._graphs = graphs
        self._progress = progress
        self._sampling: dict[str, Any] = {"temperature": 0.0, "top_k": 40, "seed": 0}
        self._execs: dict[str, Any] = {}
        self.memory = arena(device, contents(weights, context))

    def close(self) -> None:
        for exe in self._execs.values():
            exe.close()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sampling(self, **values: Any) -> None:
        """Say how tokens are chosen: ``temperature`` (0 takes the most probable), ``top_k`` and ``seed``."""
        self._sampling |= values
        for name, exe in self._execs.items():
            if name != "decode":
                exe.update(**values)

    @property
    def step(self) -> Any:
        """What launches a decode step: an exec, one without params where the most probable token is taken."""
        greedy = self._sampling["temperature"] == 0
        return self._built("decode" if greedy else "sample", partial(decode_graph, greedy=greedy), self._graphs)

    def bucket(self, rows: int) -> gd.GraphExec:
        """The exec for prompts of up to ``rows`` tokens."""
        made: gd.GraphExec = self._built(f"prompt{rows}", partial(prompt_graph, rows=rows))
        return made

    def _built(self, name: str, declare: Callable[..., gd.Graph], launched: bool = True) -> Any:
        """What launches a graph, or its kernels one by one; built when it is first needed."""
        if name not in self._execs:
            graph = declare(config=self.config, context=self.context, memory=self.memory)
            graph.compile(self.device, progress=lambda done, total, kernel: self._progress(name, done, total))
            known = {param: value for param, value in self._sampling.items() if param in graph.operands}
            # Launches one by one are given all arrays, those that only lie between nodes, too.
            exe = graph.instantiate(self.device, values=known, share_memory=launched)
            if not launched:
                from .stream_launches import StreamLaunches

                exe = StreamLaunches(graph, exe)
            self._execs[name] = exe
        return self._execs[name]

    def prepare(self, count: int) -> None:
        """Build what a prompt of so many tokens and its answer need, so that neither waits for it."""
        for part in parts(count):
            self.bucket(bucket_of(part))
        self.step  # noqa: B018

    def prompt(self, tokens: Sequence[int]) -> int:
        """Continue the conversation by these tokens; the token that the model puts behind them.

        It is processed in `parts`, each padded to the smallest bucket that has room for it.

        Parameters
        ----------
        tokens : sequence of int
            At least one.

        Raises
        ------
        GraphdslError
            If the conversation has no room for them.
        """
        self._require_room(len(tokens))
        done = 0
        for count in parts(len(tokens)):
            exe = self.process(tokens[done : done + count], bucket_of(count))
            done += count
        return int(exe["tokens"][self.position])

    def process(self, tokens: Sequence[int], rows: int, padding: int = 0) -> gd.GraphExec:
        """Process one part of a prompt in the graph for ``rows`` tokens; gives its exec.

        Parameters
        ----------
        tokens : sequence of int
            At most ``rows``.
        rows : int
        padding : int
            The token that the rest is filled with; it makes no difference.
        """
        exe = self.bucket(rows)
        exe["prompt"][:] = padding
        exe["prompt"][: len(tokens)] = tokens
        exe.update(start=self.position, count=len(tokens))
        exe.launch()
        exe.synchronize()
        self.position += len(tokens)
        self._on_device = self.position
        return exe

    def go_back(self, position: int, token: int) -> None:
        """Forget what follows a place in the conversation, and go on with another token there.

        Parameters
        ----------
        position : int
            At most that of the conversation.
        token : int
        """
        self.memory["position"].copy_from_host(np.array([position]))
        self.memory["token"].copy_from_host(np.array([token]))
        self.position = self._on_device = position

    def answer(self, count: int) -> Iterator[int]:
        """The tokens that follow the one that `prompt` gave, at most ``count``, each as soon as the device has it.

        Launches run ahead of the tokens that are read: the steps beyond the last token that is taken leave keys and
        values behind the position, where whatever the conversation goes on with overwrites them.

        Raises
        ------
        GraphdslError
            If steps ran ahead of the last answer, and no prompt has followed.
        """
        if self._on_device != self.position:
            raise gd.GraphdslError(
                "steps ran ahead of an answer that was not read to its end",
                field="position",
                value=self.position,
                remedy="Go on with a prompt.",
            )
        count = min(count, self.context - self.position)
        start, step = self.position, self.step
        ring = step["tokens"]
        ring[start + 1 : start + count + 1] = _NONE
        try:
            for i in range(count):
                while self._on_device < start + min(i + AHEAD, count):
                    step.launch()
                    self._on_device += 1
                token = self._written(step, ring, start + i + 1)
                self.position += 1
                yield token
        finally:
            step.synchronize()

    def _written(self, step: Any, ring: np.ndarray, place: int) -> int:
        """The token at a place of the conversation, once it is there."""
        for _ in polling(step):
            if ring[place] != _NONE:
                break
        return int(ring[place])

    def _require_room(self, count: int) -> None:
        room = self.context - self.position
        if not 0 < count <= room:
            raise gd.GraphdslError(
                f"a prompt has 1 to {room} tokens: the conversation has room for no more",
                field="prompt",
                value=f"{count} tokens",
                remedy="Make it shorter, or make room with --context." if count else "Say something.",
            )
