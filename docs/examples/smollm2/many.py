"""Many prompts at a time: the lines of a file, each answered as soon as there is room for it."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import graphdsl as gd

from .engine import Answer, Engine
from .engine_graphs import Room
from .launches import Launches
from .tokenizer import ChatTokenizer
from .weights import find, load


def answers(
    engine: Engine, prompts: Sequence[Sequence[int]], most: int, stops: Collection[int], **sampling: Any
) -> Iterator[tuple[int, Answer]]:
    """Answer prompts, as many at a time as there is room for; each with its place among them, as soon as it is whole.

    Parameters
    ----------
    engine : Engine
    prompts : sequence of sequence of int
    most : int
        Tokens of an answer, at most.
    stops : collection of int
        Tokens that end an answer.
    **sampling
        As `Engine.submit` takes it.

    Raises
    ------
    GraphdslError
        If there is no room for a prompt and so long an answer.
    """
    device_stop = min(stops, default=None)
    left, open_answers = deque(enumerate(prompts)), dict[int, Answer]()
    while left or open_answers:
        while left and engine.scheduler.waiting < engine.scheduler.most_waiting:
            i, prompt = left.popleft()
            open_answers[i] = engine.submit(prompt, most, stop=device_stop, **sampling)
        engine.turn()
        for i, answer in list(open_answers.items()):
            if not answer.ending and answer.tokens and answer.tokens[-1] in stops:
                engine.cancel(answer)  # the device looks for one of them
            if answer.ending:
                yield i, open_answers.pop(i)


def lines_of(path: str | Path) -> list[str]:
    """The prompts in a file: its lines, without the empty ones.

    Raises
    ------
    GraphdslError
        If it cannot be read, or there are none.
    """
    try:
        lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as problem:
        lines, why = [], f"this file cannot be read ({problem})"
    else:
        why = "there is none in this file"
    if lines:
        return lines
    raise gd.GraphdslError(
        f"prompts are the lines of a text file, and {why}",
        field="--prompts",
        value=repr(str(path)),
        remedy="Name a file with a prompt in each line.",
    )


def answer_lines(
    given: argparse.Namespace, told: Callable[[str], None], progress: Callable[[str, int, int], None]
) -> int:
    """Answer each line of a file, and say how long all of them took; gives the exit status."""
    lines = lines_of(given.prompts)
    weights = load(find(given.model))
    tokenizer = ChatTokenizer(weights.metadata)
    system = [("system", given.system)] if given.system is not None else []
    prompts = [tokenizer.chat([*system, ("user", line)]) for line in lines]
    launches = _kind(given).of(weights, gd.cuda(), Room(context=given.context), progress=progress)
    sampling = {"temperature": given.temperature, "top_k": given.top_k, "seed": given.seed}
    with Engine(launches) as engine:
        launches.warm_up()
        begun, tokens = time.perf_counter(), 0
        for i, answer in answers(engine, prompts, given.max_tokens, tokenizer.stops, **sampling):
            said = [token for token in answer.tokens if token not in tokenizer.stops]
            text = tokenizer.stream()
            print(f"# {lines[i]}\n{''.join(map(text.add, said))}{text.end()}\n", flush=True)
            tokens += len(answer.tokens)
        seconds = time.perf_counter() - begun
    told(f"{len(lines)} prompts, {tokens} tokens in {1e3 * seconds:.0f} ms: {tokens / seconds:,.0f} tokens/s")
    return 0


def _kind(given: argparse.Namespace) -> type[Launches]:
    if not given.no_graph:
        return Launches
    from .one_by_one import OneByOne

    return OneByOne
