"""How fast the model is on this machine's GPU, and what that is made of.

    python docs/examples/smollm2/bench.py --out docs/benchmarks/smollm2/h200.json

Results are written after each part, so that one that is broken off has what it found. `report` makes a page of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from graphdsl.kernels import packing
from numba import cuda

import graphdsl as gd
from graphdsl.bench.measure import Budget, no_collection, spread
from graphdsl.bench.peers.gpu import DeviceClock, use_primary_context
from graphdsl.bench.timed_driver import TimedDriver
from smollm2.generate import Generator
from smollm2.memory import Memory, Operands, batch_memory, blank
from smollm2.model import batch_graph, decode_graph, prompt_graph
from smollm2.parts import measure, parser
from smollm2.stream_launches import StreamLaunches
from smollm2.tokenizer import ChatTokenizer
from smollm2.weights import LLAMA2_7B, SMOLLM2_135M, Config, find, load

TOKENS = 128
REPEATS = 9
_HELD, _ONCE = 4, Budget(0, 1, 1)  # few: launches into a stream that is held must not fill its queue
PROMPTS = (16, 32, 64, 128, 256, 512)
FORMAT = 1

Timing = dict[str, float]
clock = time.perf_counter


def main() -> int:
    asked = parser(__doc__)
    asked.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)  # `compiled` runs this
    given = asked.parse_args()
    use_primary_context()  # for Numba and the clock of the device, which ask for the current one
    if given.compile:
        print(json.dumps(compile_times()))
        return 0
    return measure(given, parts(gd.cuda(), given.model), format=FORMAT, tokens=TOKENS)


def parts(device: Any, model: str | None) -> dict[str, Callable[[], Any]]:
    """The parts of the benchmark, by name."""
    bandwidth = cache(partial(read_bandwidth, device))
    generator = cache(lambda: Generator(load(find(model)), device))

    def prompt() -> list[int]:
        return ChatTokenizer(load(find(model)).metadata).chat([("user", "Tell me a story.")])

    return {
        "compile": compiled,
        "build": partial(built, device),
        "decode": lambda: decoded(generator(), prompt()),
        "prompt": lambda: {str(count): prompted(generator(), prompt(), count) for count in PROMPTS},
        "floor": lambda: floor(device, decode_graph(SMOLLM2_135M), bandwidth()),
        **{
            f"llama2 {kind} {sequences}": partial(large, device, replace(LLAMA2_7B, weights=kind), sequences, bandwidth)
            for sequences in (1, 32)
            for kind in ("bf16", "q4_1")
        },
    }


# Compiling and building


def compiled() -> dict[str, dict[str, float]]:
    """Seconds that the kernels of a chat take to compile: with an empty cache, and with what that left there."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--compile", "--out", os.devnull]
        run = partial(subprocess.run, command, env={**os.environ, "GRAPHDSL_CACHE_DIR": folder}, check=True)
        return {name: json.loads(run(stdout=subprocess.PIPE).stdout) for name in ("cold", "warm")}


def compile_times() -> dict[str, float]:
    """Seconds for the graph of a step, and for that of a prompt of up to 64 tokens; the imports are not counted."""
    device, found = gd.cuda(), {}
    for graph in (decode_graph(SMOLLM2_135M), prompt_graph(SMOLLM2_135M, 64)):
        start = clock()
        graph.compile(device)
        found[graph.name] = clock() - start
    return found


def built(device: Any) -> dict[str, Any]:
    """Milliseconds to declare, check and emit the graph of a step, once its kernels are compiled and loaded."""
    driver: Any = TimedDriver(device)
    graph = decode_graph(SMOLLM2_135M)
    samples: dict[str, list[float]] = {"declare": [], "check": [], "emit": [], "instantiate": []}
    with graph.instantiate(driver), no_collection():
        for _ in range(REPEATS):
            made, declared = _timed(partial(decode_graph, SMOLLM2_135M))
            _, checked = _timed(partial(made.check, driver))
            driver.reset()
            exe, whole = _timed(partial(made.instantiate, driver))
            emitted = driver.emission / 1e3
            for name, taken in zip(samples, (declared, checked, emitted, whole)):
                samples[name].append(taken)
            exe.close()
    nodes, edges = len(graph.all_nodes), graph.dag.number_of_edges()
    return {"nodes": nodes, "edges": edges, **{name: spread(taken).median for name, taken in samples.items()}}


def _timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """What an action gives, and its milliseconds."""
    start = clock()
    return action(), 1e3 * (clock() - start)


# Tokens


def decoded(generator: Generator, prompt: list[int]) -> dict[str, Timing]:
    """Microseconds of a step behind a short prompt, launched in each way; of ``streamed`` with the tokens read."""
    generator.prepare(len(prompt))

    def restart() -> None:
        generator.go_back(0, 0)
        generator.prompt(prompt)

    declare = partial(decode_graph, generator.config, generator.context, memory=generator.memory)
    return {**in_each_way(declare, generator.device, restart), "streamed": _streamed(generator, restart)}


def in_each_way(declare: Callable[..., gd.Graph], device: Any, restart: Callable[[], None]) -> dict[str, Timing]:
    """A step as a graph, as one whose kernels do not overlap, and as launches of its kernels one by one."""
    found = {}
    for name, overlapping in (("graph", True), ("graph, full edges", False)):
        with declare(overlapping=overlapping).instantiate(device) as exe:
            found[name] = {**_steps(exe, restart), "device": _device_time(exe, restart)}
    graph = declare()
    one_by_one = StreamLaunches(graph, graph.instantiate(device, share_memory=False))
    found["stream launches"] = _steps(one_by_one, restart)
    one_by_one.close()
    return found


def _steps(step: Any, restart: Callable[[], None]) -> Timing:
    """Launches of a step, one after the other.

    ``processor`` is the time of the thread that launches; ``first`` is that of a step with nothing in front of it, from
    the launch to its end.
    """
    walls, processors, firsts = [], [], []
    for repeat in range(REPEATS + 2):
        restart()
        with no_collection():
            start = clock()
            step.launch()
            step.synchronize()
            firsts.append(1e6 * (clock() - start))
        restart()
        with no_collection():
            start, busy = clock(), time.thread_time_ns()
            for _ in range(TOKENS):
                step.launch()
            busy = time.thread_time_ns() - busy
            step.synchronize()
            walls.append(1e6 * (clock() - start) / TOKENS)
            processors.append(busy / 1e3 / TOKENS)
        if repeat < 2:  # the first launches compile (Numba), and fill caches
            walls.clear()
            processors.clear()
            firsts.clear()
    return {
        **_spread(walls),
        "first": spread(firsts).median,
        "processor": spread(processors).median,
        "tokens_s": 1e6 / spread(walls).median,
    }


def _device_time(exe: gd.GraphExec, restart: Callable[[], None]) -> float:
    """Microseconds of a step on the device: of a few that all are queued before the first begins."""
    samples = []
    with DeviceClock() as device_clock:
        for _ in range(REPEATS):
            restart()
            samples += device_clock.measure(lambda stream: [exe.launch(stream) for _ in range(_HELD)], _ONCE)
        exe.synchronize()
    return spread(samples).median / _HELD


def _streamed(generator: Generator, restart: Callable[[], None]) -> Timing:
    walls, processors = [], []
    for _ in range(REPEATS):
        restart()
        start, busy = clock(), time.process_time_ns()
        for _ in generator.answer(TOKENS):
            pass
        walls.append(1e6 * (clock() - start) / TOKENS)
        processors.append((time.process_time_ns() - busy) / 1e3 / TOKENS)
    return {**_spread(walls), "processor": spread(processors).median, "tokens_s": 1e6 / spread(walls).median}


def prompted(generator: Generator, prompt: list[int], count: int) -> Timing:
    """Microseconds from a prompt of so many tokens to the token behind it, on the host."""
    tokens = (prompt * (count // len(prompt) + 1))[:count]
    generator.prepare(count)
    walls = []
    for _ in range(REPEATS + 1):
        generator.go_back(0, 0)
        start = clock()
        generator.prompt(tokens)
        walls.append(1e6 * (clock() - start))
    return {**_spread(walls[1:]), "tokens_s": 1e6 * count / spread(walls[1:]).median}


def _spread(samples: list[float]) -> Timing:
    found = spread(samples)
    return {"us": found.median, "low": found.low, "high": found.high}


# A large model


@cuda.jit
def randomise(words, seed, mask, base):
    """Words of random bits where the mask has ones, and those of ``base`` elsewhere."""
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        word = np.uint32(i) * np.uint32(2654435761) + np.uint32(seed)
        word ^= word >> np.uint32(15)
        word *= np.uint32(2246822519)
        word ^= word >> np.uint32(13)
        words[i] = (word & np.uint32(mask)) | np.uint32(base)


_BITS: dict[str, tuple[int, int]] = {
    "bf16": (0x80FF, 0x3B00),  # of either sign, near 0.002
    "bytes": (0xFF, 0),
    "scale and least": (0x00FF00FF, 0x98001400),  # 0.001 * q - 0.002 or so
}


def large(device: Any, config: Config, sequences: int, bandwidth: Callable[[], float]) -> dict[str, Any]:
    """A step of a model with random weights, which a kernel makes on the device, in each way; and its floor."""
    context, declare = 512, decode_graph
    if sequences == 1:
        memory = blank(device, Operands.shapes(config, context) | {"best": ((1,), np.int64)})
    else:
        memory = batch_memory(device, config, sequences, context)
        declare = partial(batch_graph, sequences=sequences)
    declare = partial(declare, config, context=context, memory=memory)
    fill(memory, device, config, context, sequences)

    def restart() -> None:
        memory["position"].copy_from_host(np.full(sequences, 16, np.int32))

    return {"floor": floor(device, declare(), bandwidth()), **in_each_way(declare, device, restart)}


def fill(memory: Memory, device: Any, config: Config, context: int, sequences: int) -> None:
    """Random weights, and zeros in the rest: the conversations so far are of zeros, so to say."""
    g = gd.Graph("weights")
    shared = Operands(g, config, context, memory, sequences)
    for i in range(config.layers):
        with g.scope(f"layer{i}"):
            shared.layer(i)
    for seed, (name, operand) in enumerate(list(g.operands.items())):
        if not name.endswith(("_weights", "_scales")) or operand.dtype == np.float16:
            value = 1.0 if name.endswith("norm") else 1e-3 if name.endswith("scales") else 0
            g.memset(operand, value, name=f"set {name}")
            continue
        kind = {2: "bf16", 1: "bytes", 4: "scale and least"}[operand.dtype.itemsize]
        args = (operand, np.uint32(seed), *map(np.uint32, _BITS[kind]))
        g.kernel(randomise, grid=1024, block=256, args=args, name=f"random {name}")
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
    memory["rotary"].copy_from_host(packing.rotary_table(context, config.head_size, config.rope_base).ravel())
    if sequences == 1:
        memory["best"].copy_from_host(np.zeros(1, np.int64))


# The floor


@cuda.jit
def nothing(x):
    gd.device.launch_dependents()
    gd.device.grid_dependency_wait()
    if x.size == 0:
        x[0] = 0


@cuda.jit(fastmath=True)
def read(words, out):
    """Read all words, 16 bytes at a time; the sum keeps the reads alive."""
    total = np.uint32(0)
    for i in range(4 * cuda.grid(1), words.size, 4 * cuda.gridsize(1)):
        a, b, c, d = gd.device.load4(words, i)
        total += a + b + c + d
    if total == 1:
        out[0] = total


def floor(device: Any, graph: gd.Graph, bandwidth: float) -> dict[str, float]:
    """What a step cannot be faster than: its weights over the bandwidth, and its nodes times the gap between two."""
    nodes = len(graph.all_nodes)
    sizes = {
        name: operand.nbytes
        for name, operand in graph.operands.items()
        if name.endswith(("_weights", "_scales", "_norm"))
    }
    if "head_weights" in sizes:  # of the embedding some rows are read then, and not all of it
        sizes = {name: nbytes for name, nbytes in sizes.items() if not name.startswith("embedding_")}
    nbytes = sum(sizes.values())
    gap = node_gap(device, nodes)
    return {
        "nodes": nodes,
        "weight_bytes": nbytes,
        "bandwidth_gb_s": bandwidth,
        "gap_us": gap,
        "us": nbytes / bandwidth / 1e3 + nodes * gap,
    }


def read_bandwidth(device: Any, nbytes: int = 2**32) -> float:
    """Gigabytes a second that a kernel reads of memory that no cache holds."""
    g = gd.Graph("read")
    words, out = g.device_array("words", nbytes // 4, np.uint32), g.device_array("out", 1, np.uint32)
    g.kernel(read, grid=132 * 16, block=512, args=(words, out))
    with g.instantiate(device) as exe:
        return nbytes / 1e3 / _launches(exe, 10)


def node_gap(device: Any, nodes: int) -> float:
    """Microseconds from a node to the next in a chain of kernels that do nothing, and overlap."""
    g = gd.Graph("gaps")
    x = g.device_array("x", 1, np.float32)
    before = None
    for _ in range(nodes):
        node = g.kernel(nothing, grid=96, block=256, args=x)
        if before is not None:
            g.edge(before, node, programmatic=True)
        before = node
    with g.instantiate(device) as exe:
        return _launches(exe, 50) / nodes


def _launches(exe: Any, count: int) -> float:
    """Microseconds of a launch, of many behind each other."""
    walls = []
    for _ in range(REPEATS + 1):
        start = clock()
        for _ in range(count):
            exe.launch()
        exe.synchronize()
        walls.append(1e6 * (clock() - start) / count)
    return spread(walls[1:]).median


if __name__ == "__main__":
    sys.exit(main())
