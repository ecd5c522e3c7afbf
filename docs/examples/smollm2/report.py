"""A page and a chart of what `bench` found: all numbers on them are from its JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WAYS = {
    "graph": "one graph a token, kernels that overlap",
    "streamed": "the same, each token read by the host",
    "graph, full edges": "one graph a token, one kernel after the other",
    "stream launches": "the same kernels, launched one by one by Numba",
}

# Tokens a second on an H200, measured beside the first kernels of this example.
_LLAMA_CPP = {"graphs": 926, "no graphs": 414}
_LLAMA_CPP_PROMPTS = {"128": 17_300, "512": 51_500}
_TRANSFORMERS = {"a CUDA graph": 308, "eager": 40}


def render(source: Path) -> tuple[Path, Path]:
    """Write the page and the chart of a JSON file beside it; gives both."""
    page, picture = source.with_suffix(".md"), source.with_suffix(".png")
    page.write_text(page_of(source), encoding="utf-8")
    chart(json.loads(source.read_text()), picture)
    return page, picture


def page_of(source: Path) -> str:
    """The page that belongs to a JSON file."""
    found = json.loads(source.read_text())
    parts = [
        f"# A language model in one graph: {source.stem}",
        "Rendered by `docs/benchmarks/render.py` from the JSON file of the same name, which "
        "`docs/examples/smollm2/bench.py` wrote. Times are medians. " + machine(found) + ".",
        f"![Tokens a second, and where the time of a step goes]({source.with_suffix('.png').name})",
    ]
    parts += [text for name, section in _SECTIONS.items() if name in found for text in section(found)]
    parts += _large(found)
    return "\n\n".join(parts) + "\n"


def machine(found: dict[str, Any]) -> str:
    """What it was measured on."""
    about = found["machine"]
    return ", ".join(str(about[name]) for name in ("gpu", "driver", "processor", "date") if name in about)


def _decode(found: dict[str, Any]) -> list[str]:
    ways, tokens = found["decode"], found["tokens"]
    slowest = ways["stream launches"]["us"]
    rows = [
        [
            title,
            f"{ways[name]['us']:.1f}",
            f"{ways[name]['tokens_s']:,.0f}",
            f"{ways[name]['processor']:.1f}",
            f"{slowest / ways[name]['us']:.1f}",
        ]
        for name, title in _WAYS.items()
    ]
    known = {f"llama.cpp, {name}": rate for name, rate in _LLAMA_CPP.items()}
    known |= {f"transformers, bf16, {name}": rate for name, rate in _TRANSFORMERS.items()}
    others = [[name, f"{1e6 / rate:.0f}", f"{rate:,}", "", ""] for name, rate in known.items()]
    heading = ["a step of SmolLM2-135M, batch 1", "µs", "tokens/s", "processor µs", "times as fast"]
    return [
        "## A token",
        f"Mean over {tokens} tokens behind a short prompt. llama.cpp of October 2026 with the same file, and "
        "transformers with the same shapes, were measured on a machine of this kind.",
        table(heading, rows + others),
    ]


def _prompt(found: dict[str, Any]) -> list[str]:
    rows = [
        [
            count,
            f"{timing['us'] / 1e3:.2f}",
            f"{timing['tokens_s']:,.0f}",
            f"{_LLAMA_CPP_PROMPTS[count]:,}" if count in _LLAMA_CPP_PROMPTS else "",
        ]
        for count, timing in found["prompt"].items()
    ]
    return [
        "## A prompt",
        "From the call to the first token of the answer on the host.",
        table(["tokens", "ms", "tokens/s", "llama.cpp, tokens/s"], rows),
    ]


def _floor(found: dict[str, Any]) -> list[str]:
    floor = found["floor"]
    text = (
        f"{floor['weight_bytes'] / 1e6:.1f} MB of weights at the measured {floor['bandwidth_gb_s']:,.0f} GB/s, and "
        f"{floor['nodes']} nodes times the measured gap of {floor['gap_us']:.2f} µs between kernels that do nothing "
        f"and overlap: {floor['us']:.0f} µs."
    )
    if "decode" in found:
        text += f" A step takes {found['decode']['graph']['us'] / floor['us']:.2f} times that."
    return ["## The floor", text]


def _build(found: dict[str, Any]) -> list[str]:
    build = found["build"]
    whole = build["declare"] + build["check"] + build["emit"]
    text = (
        f"{build['nodes']} nodes and {build['edges']} edges: declared in {build['declare']:.1f} ms, checked in "
        f"{build['check']:.1f} ms, emitted in {build['emit']:.2f} ms, {whole:.1f} ms in all. `instantiate`, with what "
        f"the driver does and memory, takes {build['instantiate']:.0f} ms."
    )
    return ["## Building the graph of a step", text]


def _compile(found: dict[str, Any]) -> list[str]:
    rows = [
        [graph, *(f"{found['compile'][cache][graph]:.2f}" for cache in ("cold", "warm"))]
        for graph in found["compile"]["cold"]
    ]
    return ["## Compiling", table(["graph", "with an empty cache, s", "with what that left, s"], rows)]


_SECTIONS = {"decode": _decode, "prompt": _prompt, "floor": _floor, "build": _build, "compile": _compile}


def _large(found: dict[str, Any]) -> list[str]:
    tokens, rows = found["tokens"], []
    for name in (name for name in found if name.startswith("llama2 ")):
        _, kind, sequences = name.split()
        for graph, way, device in (("off", "stream launches", "graph, full edges"), ("on", "graph", "graph")):
            timing, floor = found[name][way], found[name]["floor"]
            total, busy = timing["us"] * tokens / 1e3, found[name][device]["device"] * tokens / 1e3
            times = (f"{timing['first'] / 1e3:.2f}", *(f"{each:.0f}" for each in (total, busy, max(total - busy, 0))))
            step = f"{timing['us'] / 1e3:.2f}", f"{floor['us'] / 1e3:.2f}"
            rows.append([kind, sequences, graph, *times, *step, f"{int(sequences) * timing['tokens_s']:,.0f}"])
    if not rows:
        return []
    heading = ["weights", "batch", "graph", "first token, ms", f"{tokens} tokens, ms", "GPU time, ms"]
    heading += ["launch overhead, ms", "a step, ms", "its floor, ms", "tokens/s"]
    return [
        "## LLaMA-2-7B shapes, random weights",
        "The same kernels launched one by one by Numba (off), and as one graph a token whose kernels overlap (on). GPU "
        "time is that of a few steps that are queued before the first begins; for launches one by one that of the same "
        "kernels in a graph with full edges. What is left is launch overhead.",
        table(heading, rows),
    ]


def table(heading: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown, numbers at the right."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def chart(found: dict[str, Any], path: Path) -> None:
    """Tokens a second in each way, and prompts; needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    ours = [(title, found["decode"][name]["tokens_s"], "C0") for name, title in _WAYS.items() if "decode" in found]
    others = [(f"llama.cpp, {name}", rate, "0.6") for name, rate in _LLAMA_CPP.items()]
    others += [(f"transformers, bf16, {name}", rate, "0.6") for name, rate in _TRANSFORMERS.items()]
    titles, rates, colours = zip(*reversed(ours + others))
    bars = left.barh(titles, rates, color=colours, zorder=3)
    left.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=3)
    left.set(title="SmolLM2-135M, batch 1, tokens a second", xlim=(0, 1.2 * max(rates)))
    if "prompt" in found:
        counts = [int(count) for count in found["prompt"]]
        right.plot(counts, [each["tokens_s"] for each in found["prompt"].values()], "o-", label="graphs", zorder=3)
    theirs = {int(count): rate for count, rate in _LLAMA_CPP_PROMPTS.items()}
    right.plot(list(theirs), list(theirs.values()), "s", color="0.6", label="llama.cpp", zorder=3)
    right.set(title="prompts, tokens a second", xlabel="tokens of the prompt", xscale="log", yscale="log")
    counts = [int(count) for count in found.get("prompt", _LLAMA_CPP_PROMPTS)]
    right.set_xticks(counts, [str(count) for count in counts])
    right.minorticks_off()
    right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(alpha=0.4, zorder=0)
    figure.savefig(path, dpi=110)
