"""Libraries are measured in processes of their own: what was found is kept, whatever happens to the process."""

import io
import json
import os
import sys
import time
from types import SimpleNamespace

import pytest

from graphdsl.bench import run, worker
from graphdsl.bench.imports import import_times
from graphdsl.bench.peers import PEERS, Setting, cases_of
from graphdsl.bench.records import NO_GRAPH, OURS, Case
from graphdsl.errors import GraphdslError


def test_a_plan_combines_shapes_and_sizes():
    plan = run.make_plan(nodes=(1, 5), shapes=("chain", "random"))
    assert plan.peers == (OURS,)
    assert plan.cases == (Case("chain", 1), Case("chain", 5), Case("random", 5))  # one node has no shape


def test_without_sizes_those_of_the_targets_are_measured_too():
    plan = run.make_plan(peers=True)
    assert plan.peers == tuple(PEERS)
    assert {Case("chain", count) for count in (1, 10, 10_000, 100_000)} < set(plan.cases)
    assert Case("fan-out", 10_000) not in plan.cases
    assert max(case.nodes for case in run.make_plan(quick=True).cases) == 1000


@pytest.mark.parametrize("wrong", [{"nodes": (0,)}, {"shapes": ("ring",)}])
def test_a_plan_of_nothing_sensible_is_refused(wrong):
    with pytest.raises(GraphdslError):
        run.make_plan(**wrong)


def test_a_library_is_measured_on_what_it_can_build_and_the_largest_last():
    cases = [Case("chain", 100_000), Case("random", 10), Case("chain", 10)]
    assert cases_of("cupy", cases) == [Case("chain", 10)]
    assert cases_of("c", cases) == [Case("random", 10), Case("chain", 10), Case("chain", 100_000)]


# The process


def answers(monkeypatch, module, cases=((("chain", 2)), ("chain", 4))):
    monkeypatch.setattr(worker, "peer_module", lambda name: module)
    out = io.StringIO()
    worker.answer({"peer": "some", "cases": cases, "setting": {"quick": True}}, out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_worker_answers_case_by_case(monkeypatch):
    module = SimpleNamespace(
        unavailable=lambda: None,
        measure=lambda case, setting: {"emit": [float(case.nodes)]},
        extras=lambda setting: iter([(Case("chain", 1), {"quick": [float(setting.quick)]})]),
    )
    assert answers(monkeypatch, module) == [
        {"case": ["chain", 1], "samples": {"quick": [1.0]}},
        {"case": ["chain", 2], "samples": {"emit": [2.0]}},
        {"case": ["chain", 4], "samples": {"emit": [4.0]}},
    ]


def test_a_worker_says_why_a_library_is_absent(monkeypatch):
    assert answers(monkeypatch, SimpleNamespace(unavailable=lambda: "not here")) == [{"absent": "not here"}]


def test_a_worker_keeps_what_was_found_before_a_failure(monkeypatch):
    def measure(case, setting):
        if case.nodes > 2:
            raise RuntimeError("cuGraphLaunch: CUDA_ERROR_UNKNOWN")
        return {"emit": [1.0]}

    found = answers(monkeypatch, SimpleNamespace(unavailable=lambda: None, measure=measure))
    assert found == [
        {"case": ["chain", 2], "samples": {"emit": [1.0]}},
        {"absent": "RuntimeError: cuGraphLaunch: CUDA_ERROR_UNKNOWN"},
    ]


# Running it

_FOUND = 'print(\'{"case": ["chain", 2], "samples": {"emit": [3.0]}}\', flush=True)'


@pytest.mark.parametrize(
    ("then", "seconds", "reason"),
    [
        ("pass", 60, None),
        ("import os; os.abort()", 60, "its process ended with status -6: it said nothing"),
        ("raise SystemExit('out of luck')", 60, "its process ended with status 1: out of luck"),
        ("import time; time.sleep(60)", 3, "it was stopped after 3 s"),
        ("print('{\"case\":')", 60, None),
    ],
    ids=["well", "crash", "exit", "hang", "cut"],
)
def test_a_process_that_fails_costs_only_what_it_had_not_found(monkeypatch, then, seconds, reason):
    monkeypatch.setattr(run, "worker_command", lambda request: [sys.executable, "-c", f"{_FOUND}; {then}"])
    found, said = run.measure_peer("c", [Case("chain", 2)], Setting(), seconds)
    assert [(record.peer, record.metric, record.median) for record in found] == [("c", "emit", 3.0)]
    assert said == reason


def test_a_process_is_ended_with_all_that_it_started(monkeypatch, tmp_path):
    number = tmp_path / "pid"
    code = (
        "import subprocess, sys, time, pathlib; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        f"pathlib.Path({str(number)!r}).write_text(str(child.pid)); time.sleep(60)"
    )
    monkeypatch.setattr(run, "worker_command", lambda request: [sys.executable, "-c", code])
    assert run.measure_peer("c", [], Setting(), 3.0) == ([], "it was stopped after 3 s")
    for _ in range(100):
        if not running(int(number.read_text())):
            return
        time.sleep(0.05)
    pytest.fail("the process that was started goes on")


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_when_the_time_is_over_nothing_is_begun(monkeypatch):
    monkeypatch.setattr(run, "worker_command", None)
    assert run.measure_peer("c", [], Setting(), 0.0) == ([], "the time of the whole run was over")


def test_a_real_worker_measures_what_needs_no_gpu():
    found, reason = run.measure_peer(OURS, [Case("chain", 3)], Setting(quick=True), 60.0)
    assert reason is None
    metrics = {record.metric for record in found}
    assert {"declare", "check", "plan", "pack", "emit", "instantiation", "build", "second_exec"} <= metrics
    assert {(record.shape, record.nodes) for record in found} == {("chain", 3)}


def test_without_a_gpu_other_libraries_are_named_and_not_tried(monkeypatch):
    monkeypatch.setattr(run, "make_setting", lambda folder, quick: Setting(quick=quick))
    monkeypatch.setattr(run, "import_times", lambda rounds: {"import": [1.0]})
    tried = []
    monkeypatch.setattr(run, "measure_peer", lambda peer, *rest: tried.append(peer) or ([], None))
    told = []
    results = run.run(run.make_plan(peers=True, nodes=(1,)), told.append)
    assert tried == [OURS]
    assert told == ["import", "graphdsl"]
    assert set(results.absent) == set(PEERS) - {OURS}
    assert results.median(OURS, "import", NO_GRAPH) == 1.0
    assert results.machine["python"]


def test_imports_are_timed_in_fresh_interpreters():
    found = import_times(1)
    assert len(found["import"]) == 1
    assert found["import"][0] > found["import_numpy"][0] / 2 > 0
    assert "import_networkx" in found
