"""Orders of nodes between which there are programmatic edges."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hypothesis import given
from hypothesis import strategies as st

from graphdsl.drivers.emulator.overlap import _MOST_PUT_OFF, Overlap

Edges = dict[int, dict[int, int]]


def log_of(
    edges: Edges, count: int, waits: Callable[[int], bool] = lambda node: True, soon: Collection[int] = ()
) -> list[tuple[str, int]]:
    """What starts, waits, goes on and ends, of nodes in the order of their numbers; those ``soon`` do not wait long."""
    log: list[tuple[str, int]] = []

    def run(node: int, before_wait: Callable[[], None] | None) -> None:
        log.append(("start", node))
        if waits(node):
            log.append(("wait", node))
            if before_wait is not None:
                before_wait()
            log.append(("go on", node))
        log.append(("end", node))

    overlap = Overlap(edges, run)
    for node in range(count):
        assert overlap.take(node) is not overlap.is_put_off(node)
        if node in soon:
            overlap.complete(node)
    assert not any(map(overlap.is_put_off, range(count)))
    return log


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Edges, int]:
    count = draw(st.integers(1, 8))
    pairs = [(source, target) for target in range(count) for source in range(target)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges: Edges = {}
    for source, target in chosen:
        edges.setdefault(target, {})[source] = draw(st.sampled_from([0, 1, 1, 2]))
    return edges, count


@given(graphs(), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_edges_hold(graph: tuple[Edges, int], waiting: set[int], soon: set[int]) -> None:
    edges, count = graph
    log = log_of(edges, count, waiting.__contains__, soon)
    assert len(log) == len(set(log))
    assert {node for what, node in log if what == "end"} == set(range(count))
    at = {entry: place for place, entry in enumerate(log)}
    for target, sources in edges.items():
        for source, port in sources.items():
            if port == 0:
                assert at["end", source] < at["start", target]
            elif port == 1 and target in waiting:
                assert at["end", source] < at["go on", target]


@given(graphs(), st.sets(st.integers(0, 7)))
def test_a_kernel_behind_a_programmatic_edge_starts_before_the_one_in_front(
    graph: tuple[Edges, int], waiting: set[int]
) -> None:
    edges, count = graph
    log = log_of(edges, count, waiting.__contains__)
    at = {entry: place for place, entry in enumerate(log)}
    for source in range(count):
        behind = [target for target, sources in edges.items() if source in sources]
        if behind and all(edges[target][source] for target in behind):
            # Some other edge may need the one in front whole before any behind it can start.
            needed = any(
                source != front and port == 0 and reaches(edges, source, front)
                for target in behind
                for front, port in edges[target].items()
            )
            assert needed or min(at["start", node] for node in behind) < at["start", source]


def reaches(edges: Edges, source: int, target: int) -> bool:
    return source == target or any(reaches(edges, source, front) for front in edges.get(target, {}))


def test_a_kernel_that_never_waits_runs_wholly_before_the_one_in_front() -> None:
    assert log_of({1: {0: 1}}, 2, lambda node: False) == [("start", 1), ("end", 1), ("start", 0), ("end", 0)]


def test_a_kernel_is_not_waited_for_if_only_its_start_is() -> None:
    assert log_of({1: {0: 2}}, 2) == [(what, node) for node in (1, 0) for what in ("start", "wait", "go on", "end")]


def test_long_chains_are_cut() -> None:
    count = 10_000
    log = log_of({node: {node - 1: 1} for node in range(1, count)}, count)
    assert len(log) == 4 * count
    depth = deepest = 0
    for what, _ in log:
        depth += {"start": 1, "end": -1}.get(what, 0)
        deepest = max(deepest, depth)
    assert _MOST_PUT_OFF <= deepest <= _MOST_PUT_OFF + 1
