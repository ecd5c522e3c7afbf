"""What watching launches costs, measured: every part of it runs, and the launches are counted."""

from __future__ import annotations

import graphdsl as gd
from graphdsl.bench.observed import measure


def test_a_line_has_both_sides_and_what_was_measured():
    nodes, *times, more, measured, gpu = measure(gd.emulator(), 3, launches=70, turns=2).split()
    assert int(nodes) == 3
    assert len(times) == 4
    assert all(float(each) > 0 for each in [*times, gpu])
    assert more.endswith("%")
    assert int(measured) >= 1
