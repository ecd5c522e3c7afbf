"""How many tokens a second the engine makes on this machine's GPU, and how long requests wait for them.

    python docs/examples/smollm2/serve_bench.py --out docs/benchmarks/serving/h200.json

Results are written after each part, so that one that is broken off has what it found. `serve_report` makes a page of
them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import graphdsl as gd
from graphdsl.bench.measure import no_collection, spread
from graphdsl.bench.peers.gpu import use_primary_context
from smollm2 import load as traces
from smollm2 import transformers_step
from smollm2.engine import Engine
from smollm2.engine_graphs import Room
from smollm2.launches import BATCHES, Launches
from smollm2.one_by_one import OneByOne
from smollm2.parts import measure, parser
from smollm2.weights import SMOLLM2_135M, Config, find, load

FORMAT = 1
PROMPT, ANSWER = 16, 272
"""Tokens of the requests at each batch: the same number, since all of them run all the time."""

RATES = (25, 50, 100, 150, 200)
"""Requests a second, of the recorded trace."""

_REPEATS = 3
_RAW = 48  # launches behind each other that nobody reads: fewer than the ring has rows
_ONE_BY_ONE = 24  # tokens of answers whose kernels are launched one by one

clock = time.perf_counter


def main() -> int:
    given = parser(__doc__).parse_args()
    use_primary_context()  # for Numba, which asks for the current one
    return measure(given, parts(gd.cuda(), given.model), format=FORMAT, prompt=PROMPT, answer=ANSWER)


def parts(device: Any, model: str | None) -> dict[str, Callable[[], Any]]:
    """The parts of the benchmark, by name."""
    weights = cache(lambda: load(find(model)))

    @cache
    def engine(graphs: bool = True) -> Engine:
        return Engine((Launches if graphs else OneByOne).of(weights(), device, Room()))

    def warmed() -> float:
        begun = clock()
        engine().launches.warm_up()
        return clock() - begun

    @cache
    def other() -> Any:
        return transformers_step.model_of(SMOLLM2_135M)

    sizes = BATCHES if transformers_step.is_there() else ()
    return {
        "warm up": warmed,
        **{f"batch {n}": lambda n=n: batch(engine(), n, ANSWER, _REPEATS) for n in BATCHES},
        **{f"trace {rate}": lambda rate=rate: replayed(engine(), rate) for rate in RATES},
        "trace at once": lambda: replayed(engine(), 1e9),
        "stats": lambda: stats(engine()),
        **{f"transformers {n}": lambda n=n: in_transformers(other(), n, ANSWER, _REPEATS) for n in sizes},
        **{f"one by one {n}": lambda n=n: batch(engine(graphs=False), n, _ONE_BY_ONE, 2) for n in reversed(BATCHES)},
    }


def batch(engine: Engine, count: int, answer: int, repeats: int) -> dict[str, Any]:
    """So many requests at the same time, while all of them run; the first repeat warms up, and counts for nothing.

    Returns
    -------
    dict
        ``tokens_s``; ``token``: the median and the 99th percentile of milliseconds between two tokens of a request;
        ``step``: milliseconds of a step when many are launched behind each other and no token is read: what the device
        takes.
    """
    steps = []

    def together() -> list[float]:
        times, step = _together(engine, count, answer)
        steps.append(step)
        return times

    return {**_repeated(together, count, repeats), "step": spread(steps[1:]).median}


def _repeated(measured: Callable[[], list[float]], count: int, repeats: int) -> dict[str, Any]:
    """``tokens_s`` and ``token`` of so many requests, of which all have a token at each time that is measured."""
    rates, gaps = [], []
    for repeat in range(repeats + 1):
        with no_collection():
            times = measured()
        if repeat:
            gaps += np.diff(times).tolist()
            rates.append(count * (len(times) - 1) / (times[-1] - times[0]))
    return {"tokens_s": spread(rates).median, "token": traces.percentiles(gaps)}


def _together(engine: Engine, count: int, answer: int) -> tuple[list[float], float]:
    """When the tokens came of steps in which all requests run; and milliseconds of a step when nobody reads them."""
    raw = _RAW
    spare = engine.ahead + count  # steps in which some run, and others join
    answers = [engine.submit(_prompt(engine.config, i), answer + spare + raw) for i in range(count)]
    while min(len(each.tokens) for each in answers) < answer:
        engine.turn()
    times = [at for at in answers[0].times if at >= max(each.times[0] for each in answers)]
    engine.drain()
    slots = [each.slot for each in answers]
    engine.launches.synchronize()
    begun = clock()
    for _ in range(raw):
        engine.launches.step(slots)
    engine.launches.synchronize()
    step = 1e3 * (clock() - begun) / raw
    for each in answers:
        engine.cancel(each)
    engine.run()
    return times, step


def _prompt(config: Config, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, config.vocabulary, PROMPT).tolist()


def in_transformers(model: Any, count: int, answer: int, repeats: int) -> dict[str, Any]:
    """The same of transformers, without ``step``; see `transformers_step`. The first repeat counts for nothing."""
    prompts = [_prompt(SMOLLM2_135M, i) for i in range(count)]

    def together() -> list[float]:
        steps = transformers_step.Steps(model, prompts, answer)
        return transformers_step.read_behind(steps.launch, steps.tokens, answer)

    return _repeated(together, count, repeats)


def replayed(engine: Engine, rate: float) -> dict[str, Any]:
    """The recorded trace at a rate of arrivals."""
    before, batches = dict(engine.counts), engine.batches.copy()
    found = traces.replay(engine, traces.read(), rate)
    rows = sum(size * steps for size, steps in (engine.batches - batches).items())
    counts = {name: engine.counts[name] - before[name] for name in before}
    return {**found, **counts, "batch": rows / counts["steps"], "padding": 1 - rows / counts["places"]}


def stats(engine: Engine) -> dict[str, Any]:
    """What the cache of its graphs has counted and timed so far; steps are buckets of up to 32 rows."""
    found = engine.launches.cache.stats()
    print(found)
    return found.to_json()


if __name__ == "__main__":
    sys.exit(main())
