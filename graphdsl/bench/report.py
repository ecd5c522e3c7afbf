"""What is made of results: text for the terminal, Markdown for the docs, a chart.

The docs' pages are rendered from the JSON that lies beside them, so that a page cannot say what no run has found.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from graphdsl.bench.peers import PEERS
from graphdsl.bench.records import OURS, Case, Results, load
from graphdsl.bench.tables import machine_text, tables
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
        "Rendered by `docs/benchmarks/render.py` from the JSON file of the same name. Times are medians; of graphdsl, "
        "the range of four samples in five stands behind. Compare within one run only.",
        machine_text(results.machine),
        *([f"![Times of each library]({picture})"] if picture else []),
        *(table.to_markdown() for table in tables(results)),
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


def chart(results: Results, path: Path) -> None:
    """Draw bars of the most important times, a library beside the other; needs matplotlib."""
    require_matplotlib(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.5), layout="constrained")
    for axes, (title, metrics, sizes, per_node) in zip(figure.subplots(1, len(_PANELS)), _PANELS):
        peers = [peer for peer in results.peers if any(_time(results, peer, metrics, size) for size in sizes)]
        width = 0.8 / max(len(peers), 1)
        for place, peer in enumerate(peers):
            times = [(_time(results, peer, metrics, size) or 0) / (size if per_node else 1) for size in sizes]
            spots = [spot + (place - (len(peers) - 1) / 2) * width for spot in range(len(sizes))]
            axes.bar(
                spots, times, width, label=PEERS[peer].title, zorder=3, edgecolor="k", linewidth=2 * (peer == OURS)
            )
        axes.set(title=title, yscale="log", ylabel="µs, lower is better", xlabel="nodes of the chain")
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
        axes.grid(axis="y", zorder=0, alpha=0.4)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=110)


def _time(results: Results, peer: str, metrics: tuple[str, ...], nodes: int) -> float | None:
    medians = (results.median(peer, metric, Case("chain", nodes)) for metric in metrics)
    return next((median for median in medians if median is not None), None)
