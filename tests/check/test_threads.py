"""A graph that is complete may be checked, planned, drawn and instantiated by many threads at once."""

from __future__ import annotations

import graphdsl as gd
from tests.bounded import at_once
from tests.conformance.test_run import demo_graph


def test_checks_find_the_same_in_all_threads():
    def wrong() -> gd.Graph:
        g = demo_graph()
        g.edge(g.node("store"), g.node("load"))
        x = g.operands["x"]
        g.memset(x[:9000], 0.5, name="far", after=g.node("load"))
        return g

    g = wrong()
    expected = [finding.message for finding in g.check(compile=False)]
    found = at_once(*[lambda: [finding.message for finding in g.check(compile=False)]] * 6)
    assert expected
    assert found == [expected] * 6


def test_every_stage_runs_in_many_threads():
    g, device = demo_graph(), gd.emulator()

    def work() -> tuple:
        assert g.check().ok
        g.to_dot(operands=True)
        with g.instantiate(device) as exe:
            exe["raw"][:] = 2.0
            exe.launch()
            exe.synchronize()
            assert exe["out"].tolist() == [4.0] * 1024
            return exe.calls

    calls = at_once(*[work] * 6)
    assert [[call.function for call in each if call.function.startswith("cuGraph")] for each in calls] == [
        [call.function for call in calls[0] if call.function.startswith("cuGraph")]
    ] * 6
    assert not any(device.live.values())
