"""The query of the profiling page, over tables that are made by hand as NVIDIA documents those of a report."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "profiling.md"

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER, textId INTEGER);
CREATE TABLE CUDA_GRAPH_NODE_EVENTS (
    start INTEGER NOT NULL, end INTEGER NOT NULL, nameId INTEGER NOT NULL, globalTid INTEGER,
    graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, shortName INTEGER NOT NULL, graphNodeId INTEGER);
"""

RANGE, CREATION, KERNEL = 59, 1, 3
MINE, OTHER = 7, 8  # threads


@pytest.fixture
def report() -> sqlite3.Connection:
    """An exec of two nodes with the same kernel, its clone, and a thread that does something else at the same time."""
    tables = sqlite3.connect(":memory:")
    tables.executescript(SCHEMA)
    names = [(1, "Graph Node Creation"), (2, "node layer0/attention"), (3, "add"), (4, "node not this one")]
    tables.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
    ranges = [
        (0, 100, RANGE, "instantiate decode", MINE, None),
        (10, 20, RANGE, None, MINE, 2),  # the name is one of the strings
        (20, 30, RANGE, "node layer1/mlp", MINE, None),  # the name is in its row
        (0, 100, RANGE, None, OTHER, 4),
        (15, None, 34, "a mark", MINE, None),  # no range: it has no end
    ]
    tables.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", ranges)
    nodes = [
        (12, 13, 101, None),
        (22, 23, 102, None),
        (50, 50, 201, None),  # copies in the exec are made, too, and say of what
        (50, 50, 201, 101),
        (50, 50, 202, 102),
        (90, 90, 301, 201),  # a copy of a copy
    ]
    tables.executemany(f"INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (?, ?, {CREATION}, {MINE}, ?, ?)", nodes)
    kernels = [(1000, 1100, 201), (1100, 1900, 202), (2000, 2300, 201), (3000, 3200, 301), (4000, 9000, None)]
    tables.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, {KERNEL}, ?)", kernels)
    return tables


def query() -> str:
    """The one on the page."""
    _, _, behind = PAGE.read_text().partition("```sql\n")
    found, _, _ = behind.partition("```")
    return found


def test_kernels_are_told_by_the_names_of_their_nodes(report):
    assert report.execute(query()).fetchall() == [
        ("node layer1/mlp", 1, 800.0),
        ("node layer0/attention", 3, 200.0),
    ]
