"""What the library has set itself to reach, held against what one run found.

Each target is one line of the table: a number that was found, and the number that it must not exceed. Where a target is
relative to another library, both were measured in the same run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from graphdsl.bench.peers import PEERS
from graphdsl.bench.records import NO_GRAPH, OURS, Case, Results

Verdict = Literal["met", "not met", "not measured"]

_LAUNCHED = (1, 100, 1000)
_UPDATED = (1, 10, 100, 1000, 10_000)
_BUILT = (1000, 10_000, 100_000)


@dataclass(frozen=True)
class Target:
    """One thing to reach.

    Attributes
    ----------
    what : str
        What is measured.
    must : str
        What it must reach, in words.
    found, limit : float or None
        Both in the unit of the line; None where it was not measured.
    unit : str
        ``"µs"``, ``"s"``, ``"bytes"`` or ``"times"``.
    """

    what: str
    must: str
    found: float | None
    limit: float | None
    unit: str = "µs"

    @property
    def verdict(self) -> Verdict:
        """Whether it was reached."""
        if self.found is None or self.limit is None:
            return "not measured"
        return "met" if self.found <= self.limit else "not met"


def targets(results: Results) -> list[Target]:
    """All targets, for one run."""
    groups = (_launches, _updates, _flatness, _grids, _building, _second_exec, _first_launch, _import)
    return [target for group in groups for target in group(results)]


def _ours(results: Results, metric: str, nodes: int, *, peer: str = OURS, per: float = 1) -> float | None:
    found = results.median(peer, metric, Case("chain", nodes))
    return None if found is None else found / per


def _against(
    results: Results, what: str, metric: str, nodes: int, peer: str, factor: float, *, theirs: str | None = None
) -> Target:
    """At most ``factor`` times what another library takes, in the same run."""
    found = _ours(results, metric, nodes)
    other = _ours(results, theirs or metric, nodes, peer=peer)
    times = "" if factor == 1 else f"{factor:g} times "
    return Target(what, f"at most {times}{PEERS[peer].title}", found, None if other is None else factor * other)


def _launches(results: Results) -> Iterator[Target]:
    for nodes in _LAUNCHED:
        for peer, factor in (("c", 1.25), ("cupy", 1.0), ("cuda_core", 1.0)):
            yield _against(results, f"launch a chain of {nodes:,}", "repeat_launch_api", nodes, peer, factor)


def _updates(results: Results) -> Iterator[Target]:
    for nodes in _UPDATED:
        what = f"update a param of {nodes:,} node{'s' if nodes > 1 else ''}"
        yield Target(what, "at most 3 + 0.35 a node", _ours(results, "update", nodes), 3 + 0.35 * nodes)
    yield Target("update one node", "at most 5", _ours(results, "node_update", 1000), 5.0)


def _flatness(results: Results) -> Iterator[Target]:
    begin = _ours(results, "update_flat_begin", 1)
    end, what = _ours(results, "update_flat_end", 1), "the last of a million updates"
    yield Target(what, "at most 1.1 times the first", end, None if begin is None else 1.1 * begin)
    heap = _ours(results, "update_flat_heap_growth", 1)
    yield Target("objects that 10,000 updates leave", "none: at most 1 KiB in all", heap, 1024.0, "bytes")
    rss = _ours(results, "update_flat_rss_growth", 1)
    yield Target("memory a million updates take", "at most 1 MiB", rss, float(2**20), "bytes")


def _grids(results: Results) -> Iterator[Target]:
    for nodes in (1000, 10_000):
        what = f"update a grid of {nodes:,} nodes, each"
        yield Target(what, "at most 0.6", _ours(results, "update_grid", nodes, per=nodes), 0.6)


def _building(results: Results) -> Iterator[Target]:
    for nodes in _BUILT:
        yield Target(f"build {nodes:,} nodes, each", "at most 20", _ours(results, "build", nodes, per=nodes), 20.0)
        yield Target(f"emit {nodes:,} nodes, each", "at most 1.0", _ours(results, "emit", nodes, per=nodes), 1.0)
    small, large = (_ours(results, "build", nodes, per=nodes) for nodes in (1000, 100_000))
    growth = None if small is None or large is None else large / small
    yield Target("building 100,000 nodes against 1,000, each", "linear: at most 1.5 times", growth, 1.5, "times")


def _second_exec(results: Results) -> Iterator[Target]:
    for nodes in (1000, 10_000):
        what = f"emit a second exec of {nodes:,} nodes"
        yield _against(results, what, "second_emit", nodes, "c", 1.2, theirs="emit")


def _first_launch(results: Results) -> Iterator[Target]:
    for nodes in _LAUNCHED:
        yield _against(results, f"first launch of a chain of {nodes:,}", "first_launch_api", nodes, "c", 1.25)


def _import(results: Results) -> Iterator[Target]:
    found = results.median(OURS, "import", NO_GRAPH)
    yield Target("import graphdsl", "at most 0.4", None if found is None else found / 1e6, 0.4, "s")


def summary(found: Iterable[Target]) -> str:
    """How many targets were met, in words.

    Examples
    --------
    >>> summary([Target("a", "", 1, 2), Target("b", "", None, 2)])
    '1 of 2 targets met, 1 not measured'
    """
    verdicts = [target.verdict for target in found]
    text = f"{verdicts.count('met')} of {len(verdicts)} targets met"
    missing = verdicts.count("not measured")
    return f"{text}, {missing} not measured" if missing else text
