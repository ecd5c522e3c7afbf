"""What is made of results: text for the terminal, Markdown for the docs, a chart.

The docs' pages are rendered from the JSON that lies beside them, so that a page cannot say what no run has found.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphdsl.bench.lane_tables import lane_tables
from graphdsl.bench.lanes import AUTO, NONE, WAYS
from graphdsl.bench.peers import PEERS
from graphdsl.bench.records import OURS, Case, Results, load
from graphdsl.bench.tables import Table, machine_text, tables
from graphdsl.errors import GraphdslError

# What the chart shows: a title, the metrics that stand for it, and the chains; times are divided by `per_node`.
_PANELS = (
    ("launch a chain, processor time", ("repeat_launch_api",), (1, 100, 1000), False),
    ("add a node (or capture it)", ("emit", "capture"), (100, 1000), True),
    ("change a node", ("update",), (1, 100, 1000), True),
)


def to_markdown(results: Results, title: str, picture: str | None = None) -> str:
    """A page of Markdown.

    Parameters
    ----------
    results : Results
        What it shows.
    title : str
        Its heading.
    picture : str, optional
        A chart to show, relative to the page.
    """
    parts = [
        f"# {title}",
        "Rendered by `docs/benchmarks/render.py` from the JSON file of the same name. Times are medians; of libraries "
        "ours has the range of four samples in five behind them. Compare within one run only.",
        machine_text(results.machine),
        *([f"![Times of each]({picture})"] if picture else []),
        *(table.to_markdown() for table in tables_of(results)),
    ]
    return "\n\n".join(parts) + "\n"


def render(source: Path) -> tuple[Path, Path]:
    """Write the page and the chart of a JSON file beside it; gives both."""
    results = load(source)
    page, picture = source.with_suffix(".md"), source.with_suffix(".png")
    page.write_text(page_of(source), encoding="utf-8")
    chart(results, picture)
    return page, picture


def page_of(source: Path) -> str:
    """The page that belongs to a JSON file."""
    results = load(source)
    return to_markdown(results, f"Benchmark: {source.stem}", source.with_suffix(".png").name)


def require_matplotlib(path: Path) -> None:
    """Make sure that a chart can be drawn.

    Raises
    ------
    GraphdslError
        If matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise GraphdslError(
            "a chart is drawn by matplotlib, which is not installed",
            field="chart",
            value=path,
            remedy="pip install matplotlib, or leave the chart out: the JSON has all numbers.",
        )


def tables_of(results: Results) -> list[Table]:
    """The tables of a run, whatever it measured."""
    return lane_tables(results) if NONE in results.peers else tables(results)


def chart(results: Results, path: Path) -> None:
    """Draw bars of the most important times, a library or a way of launching beside the other; needs matplotlib."""
    require_matplotlib(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.5), layout="constrained")
    if NONE in results.peers:
        _chart_lanes(results, figure.subplots())
    else:
        _chart_libraries(results, figure.subplots(1, len(_PANELS)))
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=110)


def _chart_libraries(results: Results, every: Any) -> None:
    for axes, (title, metrics, sizes, per_node) in zip(every, _PANELS):
        peers = [peer for peer in results.peers if any(_time(results, peer, metrics, size) for size in sizes)]
        bars = {
            PEERS[peer].title: [
                (_time(results, peer, metrics, size) or 0) / (size if per_node else 1) for size in sizes
            ]
            for peer in peers
        }
        _bars(axes, bars, [f"{size:,}" for size in sizes], PEERS[OURS].title)
        axes.set(title=title, yscale="log", ylabel="µs, lower is better", xlabel="nodes of the chain")


def _chart_lanes(results: Results, axes: Any) -> None:
    bars = {
        way: [results.median(way, "repeat_launch_total", case) or 0 for case in results.cases]
        for way in WAYS
        if way in results.peers
    }
    _bars(axes, bars, ["\n".join([f"{case.nodes:,}", *case.shape.split(": ")]) for case in results.cases], AUTO)
    axes.set(title="from the launch until the work is done", yscale="log", ylabel="µs, lower is better")
    axes.tick_params(axis="x", labelrotation=90, labelsize=6)


def _bars(axes: Any, bars: Mapping[str, Sequence[float]], labels: Sequence[str], ours: str) -> None:
    """One group of bars for each label; ours have a frame."""
    width = 0.8 / max(len(bars), 1)
    for place, (title, heights) in enumerate(bars.items()):
        spots = [spot + (place - (len(bars) - 1) / 2) * width for spot in range(len(labels))]
        axes.bar(spots, heights, width, label=title, zorder=3, edgecolor="k", linewidth=2 * (title == ours))
    axes.set_xticks(range(len(labels)), labels)
    axes.grid(axis="y", zorder=0, alpha=0.4)


def _time(results: Results, peer: str, metrics: tuple[str, ...], nodes: int) -> float | None:
    medians = (results.median(peer, metric, Case("chain", nodes)) for metric in metrics)
    return next((median for median in medians if median is not None), None)
