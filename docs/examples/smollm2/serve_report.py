"""A page and a chart of what `serve_bench` and `soak` found: all numbers on them are from their JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .report import machine, table

TRANSFORMERS = {1: 308, 32: 4709}
"""Tokens a second of transformers under a PyTorch CUDA graph by batch, bf16, with the same shapes, on an H200: what is
shown where it was not measured beside the engine."""

TARGET = 20_000
"""Tokens a second at batch 32 that were to be reached."""


def render(source: Path) -> tuple[Path, ...]:
    """Write the page of a JSON file beside it, and the chart, where there is one; gives what was written."""
    found = json.loads(source.read_text())
    page, picture = source.with_suffix(".md"), source.with_suffix(".png")
    page.write_text(page_of(source), encoding="utf-8")
    if _batches(found, "batch"):
        chart(found, picture)
        return page, picture
    return (page,)


def page_of(source: Path) -> str:
    """The page that belongs to a JSON file."""
    found = json.loads(source.read_text())
    by = "soak.py" if "wrong_answers" in found else "serve_bench.py"
    parts = [
        f"# {'A long run of the engine' if by == 'soak.py' else 'Many requests at a time'}: {source.stem}",
        "Rendered by `docs/benchmarks/render.py` from the JSON file of the same name, which "
        f"`docs/examples/smollm2/{by}` wrote. {machine(found)}.",
    ]
    if _batches(found, "batch"):
        parts.append(f"![Tokens a second by batch, and waiting by load]({source.with_suffix('.png').name})")
    for section in (_by_batch, _by_load, _soak):
        parts += section(found)
    return "\n\n".join(parts) + "\n"


def _batches(found: dict[str, Any], part: str) -> dict[int, Any]:
    """The results of a part by batch."""
    named = {name.rpartition(" "): value for name, value in found.items()}
    return dict(sorted((int(size), value) for (first, _, size), value in named.items() if first == part))


def _by_batch(found: dict[str, Any]) -> list[str]:
    ours, plain = _batches(found, "batch"), _batches(found, "one by one")
    if not ours:
        return []
    theirs = _batches(found, "transformers") or {size: {"tokens_s": rate} for size, rate in TRANSFORMERS.items()}
    rows = []
    for size, each in ours.items():
        rows.append(
            [
                size,
                f"{each['tokens_s']:,.0f}",
                f"{each['token']['p50']:.3f} / {each['token']['p99']:.3f}",
                f"{each['step']:.3f}",
                *_rate_and_wait(theirs.get(size)),
                *_rate_and_wait(plain.get(size)),
            ]
        )
    heading = ["batch", "tokens/s", "p50 / p99, ms a token", "a step behind them, ms"]
    heading += ["transformers, tokens/s", "p50 / p99, ms a token", "one by one, tokens/s", "p50 / p99, ms a token"]
    text = (
        f"So many requests at the same time, prompts of {found['prompt']} tokens, answers of {found['answer']}, each "
        "token read by the host while further steps run; a step is one graph launch. A step behind them: what the "
        "device takes for one when the answers have come, and sequences are as long as they get. Transformers: the "
        "same shapes in bfloat16, with a static cache, each step a PyTorch CUDA graph, tokens read likewise. One by "
        "one: the kernels of the engine, launched by Numba."
    )
    if 32 in ours:
        rate = ours[32]["tokens_s"]
        text += (
            f" At batch 32 that is {rate / theirs[32]['tokens_s']:.1f} times transformers, and {rate / TARGET:.2f} "
            f"times the {TARGET:,} tokens/s that were the aim."
        )
    return ["## A step of many requests", text, table(heading, rows)]


def _rate_and_wait(each: dict[str, Any] | None) -> tuple[str, str]:
    if each is None:
        return "", ""
    wait = each.get("token")
    return f"{each['tokens_s']:,.0f}", f"{wait['p50']:.2f} / {wait['p99']:.2f}" if wait else ""


def _by_load(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, each in found.items():
        if not name.startswith("trace "):
            continue
        spans = [f"{each[span]['p50']:.2f} / {each[span]['p99']:.2f}" for span in ("token", "first", "queue")]
        rate = name.removeprefix("trace ")
        rows.append([rate, f"{each['tokens_s']:,.0f}", *spans, f"{each['batch']:.1f}", f"{each['padding']:.0%}"])
    if not rows:
        return []
    heading = ["requests/s", "tokens/s", "a token, ms", "the first token, ms", "in the line, ms"]
    heading += ["mean batch", "rows of padding"]
    requests = max(each["requests"] for name, each in found.items() if name.startswith("trace "))
    text = (
        f"The recorded trace of {requests} requests, which arrive as a Poisson process, whether or not those before "
        "them are answered; median / 99th percentile. Waiting counts from the arrival."
    )
    return ["## Requests that come and go", text, table(heading, rows)]


def _soak(found: dict[str, Any]) -> list[str]:
    if "wrong_answers" not in found:
        return []
    sizes = {int(size): steps for size, steps in found["batches"].items()}
    most = max(sizes)
    text = (
        f"{found['steps']:,} steps in {found['seconds']:.0f} s, with {found['requests']:,} requests that arrived at "
        f"random ({found['cancelled']:,} of them were cancelled) and {found['tokens']:,} tokens, 1 to {most} requests "
        f"at a time. Each answer was compared with that to the same prompt alone: **{found['wrong_answers']:,} were "
        f"wrong**. Weights were swapped {found['swaps']:,} times"
    )
    if found["swap_ms"]:
        text += f" ({found['swap_ms'][0]:.2f} ms, at most {found['swap_ms'][1]:.2f})"
    text += (
        f". From the first tenth on the device's memory grew by {found['device_growth'] / 1e6:.1f} MB and this "
        f"process by {found['process_growth'] / 1e6:.1f} MB."
    )
    samples = found["memory"][:: max(1, len(found["memory"]) // 10)]
    rows = [[f"{step:,}", f"{device / 1e6:,.1f}", f"{process / 1e6:,.1f}"] for step, device, process in samples]
    return [text, table(["step", "device memory in use, MB", "this process, MB"], rows)]


def chart(found: dict[str, Any], path: Path) -> None:
    """Tokens a second by batch, and waiting by load; needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for part, label, style in (("batch", "one graph a step", "o-"), ("one by one", "launched one by one", "s--")):
        if sizes := _batches(found, part):
            left.plot(list(sizes), [each["tokens_s"] for each in sizes.values()], style, label=label, zorder=3)
    theirs = {size: each["tokens_s"] for size, each in _batches(found, "transformers").items()} or TRANSFORMERS
    left.plot(list(theirs), list(theirs.values()), "^:", color="0.5", label="transformers, a PyTorch CUDA graph a step")
    left.plot([32], [TARGET], "x", color="0.2", label="the aim")
    left.set(title="tokens a second", xlabel="requests at a time", xscale="log", yscale="log")
    sizes = [1, 2, 4, 8, 16, 32]
    left.set_xticks(sizes, list(map(str, sizes)))
    left.minorticks_off()
    loads = {float(name[6:]): each for name, each in found.items() if name.startswith("trace ") and name[6:].isdigit()}
    for span, label in (("token", "a token"), ("first", "the first token")):
        for percentile, style in (("p50", "o-"), ("p99", "o--")):
            waits = [each[span][percentile] for each in loads.values()]
            colour = "C0" if span == "token" else "C1"
            right.plot(list(loads), waits, style, color=colour, label=f"{label}, {percentile}", zorder=3)
    right.set(title="waiting, ms", xlabel="requests a second", yscale="log")
    left.set_ylim(bottom=left.get_ylim()[0] / 6)  # room for the names of four lines, here and there
    right.set_ylim(top=4 * right.get_ylim()[1])
    for axes, columns in ((left, 1), (right, 2)):
        axes.grid(alpha=0.4, zorder=0)
        axes.legend(frameon=False, ncols=columns)
    figure.savefig(path, dpi=110)
