"""Load for the engine: requests that arrive by themselves, whether or not those before them have been answered.

    python docs/examples/smollm2/load.py --seed 7 --requests 512 --out docs/examples/smollm2/trace.csv

A trace is recorded once, and replayed at any rate: gaps between arrivals are from an exponential distribution of mean 1
(a Poisson process), and a replay at a rate of r requests a second divides them by r. Waiting counts from the moment at
which a request was to arrive, so an engine that falls behind cannot make its own load lighter.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

TRACE = Path(__file__).with_name("trace.csv")
"""A trace of 512 requests, seed 7, as the command above wrote it."""

PROMPTS, ANSWERS = (32, 0.8, 4, 256), (48, 0.7, 4, 192)
"""Lengths in tokens: the median and sigma of a log-normal distribution, the least, and the most."""

_COLUMNS = ("at", "prompt", "answer")


@dataclass(frozen=True)
class Arrival:
    """A request of a trace.

    Attributes
    ----------
    at : float
        When it arrives, in mean gaps between two requests.
    prompt, answer : int
        Their lengths in tokens.
    """

    at: float
    prompt: int
    answer: int


def generated(count: int, seed: int) -> list[Arrival]:
    """A trace of so many requests; the same for the same seed.

    Examples
    --------
    >>> trace = generated(1000, seed=7)
    >>> round(trace[-1].at / len(trace), 1), min(each.prompt for each in trace), max(each.answer for each in trace)
    (1.0, 4, 192)
    """
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(1.0, count))
    prompts, answers = (_lengths(rng, count, *shape) for shape in (PROMPTS, ANSWERS))
    return [Arrival(round(float(a), 4), int(p), int(n)) for a, p, n in zip(at, prompts, answers)]


def _lengths(rng: np.random.Generator, count: int, median: float, sigma: float, least: int, most: int) -> np.ndarray:
    return np.clip(np.rint(rng.lognormal(np.log(median), sigma, count)), least, most)


def write(trace: Iterable[Arrival], file: TextIO, seed: int) -> None:
    """Write a trace as CSV, below a line that says how it was made."""
    file.write(f"# load.py --seed {seed}: arrivals in mean gaps, lengths in tokens\n")
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(_COLUMNS)
    lines.writerows((each.at, each.prompt, each.answer) for each in trace)


def read(path: Path = TRACE) -> list[Arrival]:
    """A recorded trace."""
    with path.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [Arrival(float(row["at"]), int(row["prompt"]), int(row["answer"])) for row in rows]


def prompts(trace: Sequence[Arrival], vocabulary: int, seed: int = 0) -> list[list[int]]:
    """Random tokens for the prompts of a trace: what they say makes no difference to how long they take."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocabulary, each.prompt).tolist() for each in trace]


def replay(
    engine: Any,
    trace: Sequence[Arrival],
    rate: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Let the requests of a trace arrive at an engine, and serve them; what that was like for them.

    Parameters
    ----------
    engine : Engine
    trace : sequence of Arrival
    rate : float
        Requests a second.
    clock, sleep : callable
        Of the time in seconds; that of the engine.

    Returns
    -------
    dict
        As `results` makes it, with the ``rate``.
    """
    texts = prompts(trace, engine.config.vocabulary)
    start = clock()
    due = [start + each.at / rate for each in trace]
    answers: list[Any] = []
    while len(answers) < len(trace) or engine.busy:
        while len(answers) < len(trace) and due[len(answers)] <= clock():
            i = len(answers)
            answers.append(engine.submit(texts[i], trace[i].answer))
        if engine.busy:
            engine.turn()
        elif len(answers) < len(trace):
            sleep(max(0.0, due[len(answers)] - clock()))
    return {"rate": rate, **results(due, answers)}


def results(due: Sequence[float], answers: Sequence[Any]) -> dict[str, Any]:
    """Throughput, and how long requests waited for what.

    Parameters
    ----------
    due : sequence of float
        When each request arrived.
    answers : sequence of Answer
        All of them whole.

    Returns
    -------
    dict
        ``requests``, ``tokens``, ``seconds``, ``tokens_s``; and in milliseconds, at the median and the 99th percentile:
        ``token`` (between two tokens of a request, its mean), ``gap`` (the same, each pause for itself), ``first``
        (from arrival to the first token), ``queue`` (from arrival to admission).
    """
    tokens = sum(len(answer.tokens) for answer in answers)
    seconds = max(answer.times[-1] for answer in answers) - due[0]
    spans = {
        "token": [np.diff(answer.times).mean() for answer in answers if len(answer.times) > 1],
        "gap": [gap for answer in answers for gap in np.diff(answer.times)],
        "first": [answer.times[0] - at for at, answer in zip(due, answers)],
        "queue": [answer.admitted - at for at, answer in zip(due, answers)],
    }
    return {
        "requests": len(answers),
        "tokens": tokens,
        "seconds": seconds,
        "tokens_s": tokens / seconds,
        **{name: percentiles(each) for name, each in spans.items()},
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile, in milliseconds.

    Examples
    --------
    >>> percentiles([0.001, 0.002, 0.003])
    {'p50': 2.0, 'p99': 2.98}
    """
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3 if len(seconds) else (np.nan, np.nan)
    return {"p50": round(float(p50), 4), "p99": round(float(p99), 4)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--out", type=Path, required=True, help="CSV file for the trace")
    given = parser.parse_args()
    with given.out.open("w", encoding="utf-8") as file:
        write(generated(given.requests, given.seed), file, given.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
