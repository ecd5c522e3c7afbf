"""Node by node in place of a launch: the same results, and the node that fails is named, on every driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.declare.batch import wait_value, write_value
from graphdsl.drivers.base import Driver
from tests.conformance import kernels
from tests.conformance.test_imported import pipeline

ROOT = Path(__file__).resolve().parents[2]


@cuda.jit
def count_down(more, left, turns):
    left[0] -= 1
    turns[0] += 1
    gd.device.set_condition(more, left[0] > 0)


@cuda.jit
def decide(which, value):
    gd.device.set_condition(which, value)


@cuda.jit
def decide_two(small, which, value):
    gd.device.set_condition(small, value < 2)
    gd.device.set_condition(which, value)


def outcomes(report) -> dict[str, str]:
    return {run.node: run.outcome for run in report.nodes}


def test_every_kind_of_node_runs_as_in_a_launch(device: Driver):
    seen: list[float] = []
    inner = gd.Graph("inner")
    part, gain = inner.device_array("part", 8, np.float32), inner.param("gain", np.float32, default=2.0)
    inner.kernel(kernels.add_to, grid=1, block=8, args=(part, gain, 8), name="add")

    g = gd.Graph("all kinds")
    value = g.param("value", np.float32, default=1.0)
    x, out = g.device_array("x", 8, np.float32), g.host_array("out", 8, np.float32)
    flags = g.device_array("flags", 1, np.uint32)
    done = g.event("done")
    scratch = g.alloc("scratch", 8, np.float32)
    with g.sequence():
        g.memset(x, value, name="set")
        g.child(inner, {"part": x}, name="inner")
        g.kernel(kernels.add_to, grid=1, block=8, args=(x, value, 8), name="add")
        g.empty(name="barrier")
    with g.sequence():
        g.edge(g.node("barrier"), scratch)
        g.memcpy(scratch.array, x, name="keep", after=scratch)
        g.memcpy(out, scratch.array, name="store")
        g.free(scratch)
        g.record(done)
        g.wait(done)
        g.batch_mem_ops([write_value(flags[0], 7), wait_value(flags[0], 7)], may_deadlock=True, name="flag")
        g.host(lambda array: seen.append(float(array[0])), (out,), name="look")
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [4.0] * 8
        report = exe.debug({"value": 5.0})
        assert report.ok, report
        report.raise_for_error()
        assert set(outcomes(report).values()) == {"ran"}
        assert exe["out"].tolist() == [12.0] * 8
        assert exe["value"] == 1.0
        assert seen == [4.0, 12.0]
        assert all(run.milliseconds >= 0 for run in report.nodes if run.kind not in ("child", "conditional"))
        exe.launch()
        exe.synchronize()
        assert exe["out"].tolist() == [4.0] * 8


@pytest.mark.parametrize("count", [1, 3])
def test_a_while_runs_as_often_as_in_a_launch(device: Driver, count):
    g = gd.Graph("loop")
    more = g.condition("more", default=1)
    left, turns = g.host_array("left", 1, np.int32), g.host_array("turns", 1, np.int32)
    loop = g.while_(more, name="loop")
    with loop as body:
        body.kernel(count_down, grid=1, block=1, args=(more, left, turns), name="step")
    with g.instantiate(device) as exe:
        exe["left"][0], exe["turns"][0] = count, 0
        report = exe.debug()
        assert report.ok, report
        assert exe["turns"][0] == count
        assert [run.runs for run in report.nodes if run.node == "loop/step"] == [count]
        assert "loop/step" in str(report)


@pytest.mark.parametrize("value", [0, 1, 2, 7])
def test_conditions_choose_bodies_as_in_a_launch(device: Driver, value):
    g = gd.Graph("choices")
    small, which = g.condition("small", default=0), g.condition("which", default=0)
    n = g.param("n", np.int32, default=value)
    out, case = g.host_array("out", 1, np.int32), g.host_array("case", 1, np.int32)
    chosen = g.kernel(decide_two, grid=1, block=1, args=(small, which, n), name="decide")
    branch, switch = g.if_(small, name="branch", after=chosen), g.switch(which, 3, name="switch", after=chosen)
    branch.bodies[0].memset(out, 10, name="set")
    branch.otherwise.memset(out, 20, name="set")
    for number, body in enumerate(switch.bodies):
        body.memset(case, number + 1, name="set")
    with g.instantiate(device) as exe:
        found = []
        for run in (exe.launch, exe.debug):
            exe["out"][:], exe["case"][:] = 0, 0
            run()
            exe.synchronize()
            found.append((exe["out"][0], exe["case"][0]))
        assert found[0] == found[1] == (10 if value < 2 else 20, value + 1 if value < 3 else 0)
        ran = {name for name, outcome in outcomes(exe.debug()).items() if outcome == "ran"}
        assert {name for name in ran if name.endswith("set")} == {
            "branch/then/set" if value < 2 else "branch/otherwise/set",
            *([f"switch/{value}/set"] if value < 3 else []),
        }


def test_a_condition_inside_of_another(device: Driver):
    """A kernel in the body of an if sets the condition of a while behind it in the body."""
    g = gd.Graph("nested")
    outer, inner = g.condition("outer", default=0), g.condition("inner", default=0)
    left, turns = g.host_array("left", 1, np.int32), g.host_array("turns", 1, np.int32)
    start = g.kernel(decide, grid=1, block=1, args=(outer, 1), name="start")
    with g.if_(outer, name="branch", after=start) as body:
        begin = body.kernel(decide, grid=1, block=1, args=(inner, 1), name="begin")
        with body.while_(inner, name="loop", after=begin) as again:
            again.kernel(count_down, grid=1, block=1, args=(inner, left, turns), name="step")
    with g.instantiate(device) as exe:
        exe["left"][0], exe["turns"][0] = 4, 0
        assert exe.debug().ok
        assert exe["turns"][0] == 4


def test_an_imported_graph_runs_as_in_a_launch(device: Driver):
    with pipeline().instantiate(device) as original, gd.from_handle(original).instantiate(device) as exe:
        original["raw"][:] = range(8)
        report = exe.debug()
        assert report.ok, report
        assert original["out"].tolist() == [2.0 * i for i in range(8)]


FAULTY = """
import numpy as np
from numba import cuda
import graphdsl as gd


@cuda.jit
def scale(x, gain):
    i = cuda.grid(1)
    x[i] *= gain


@cuda.jit
def stray(x, offset):
    x[cuda.grid(1) + offset] = 1


def build():
    inner = gd.Graph("inner")
    y = inner.device_array("y", 32, np.float32)
    offset = inner.param("offset", np.int64, default=1 << 40)
    inner.kernel(stray, grid=1, block=32, args=(y, offset), name="stray")
    g = gd.Graph("faulty")
    x = g.device_array("x", 32, np.float32)
    with g.sequence():
        g.memset(x, 1, name="set")
        g.kernel(scale, grid=1, block=32, args=(x, 2.0), name="scale")
        g.child(inner, {"y": x}, name="part")
        g.kernel(scale, grid=1, block=32, args=(x, 2.0), name="again")
    return g
"""
FUNCTION, DECLARATION = (
    next(number for number, line in enumerate(FAULTY.split("\n"), 1) if text in line)
    for text in ("def stray", '"stray"')
)

REPORTS = """
import json
import sys
from pathlib import Path
import graphdsl as gd
from graph import build

device = gd.emulator() if sys.argv[1] == "emulator" else gd.cuda(0)
exe, other = build().instantiate(device, values={"part/offset": 0}), build().instantiate(device)
exe.launch()
exe.synchronize()
other.launch()


def told(act):
    try:
        act()
    except gd.GraphdslError as problem:
        found = {"text": str(problem), "graph": problem.graph, "node": problem.node}
        return found | {"code": problem.code, "in_flight": problem.in_flight}


acts = [other.synchronize, exe.launch, exe.debug, exe["x"].copy_to_host, lambda: build().instantiate(device)]
acts += [lambda: exe.update({"part/offset": 1})]
print(json.dumps([told(act) for act in acts]))
sys.stdout.flush()
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "graph.py").write_text(FAULTY)
    (tmp_path / "reports.py").write_text(REPORTS)
    return tmp_path


def run(device: Driver, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a child: a fault on a GPU ends what its process can do."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {arguments[0]}", *arguments[1:]]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def named(device: Driver) -> str:
    return "emulator" if device.emulated else "cuda:0"


@pytest.mark.parametrize("where", [[], ["--here"]])
def test_the_command_line_names_the_node_that_fails(device: Driver, folder, where):
    code = "from graphdsl.cli import main; main()"
    ended = run(device, folder, code, "debug", "graph.py:build", "-d", named(device), *where)
    assert ended.returncode == 1, ended.stderr
    said = ended.stdout
    assert "2 ran, 1 failed inside, 1 failed, 1 not reached" in said
    assert "part/stray (kernel): failed" in said
    assert "grid: (1, 1, 1)" in said
    assert "block: (32, 1, 1)" in said
    assert "argument 'x': x: float32[32] at 0x" in said
    assert f"argument 'offset': {1 << 40}" in said
    assert f"in its function: {folder / 'graph.py'}:{FUNCTION - 1}" in said  # where its decorator stands
    assert f"declared at {folder / 'graph.py'}:{DECLARATION}" in said
    assert "graph 'faulty', node 'part/stray'" in said
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in said
    assert ("is lost" in said) is not device.emulated


def test_it_says_so_as_data_too(device: Driver, folder):
    code = "from graphdsl.cli import main; main()"
    ended = run(device, folder, code, "debug", "graph.py:build", "-d", named(device), "--json")
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["graph"], found["failed"], found["ok"]) == ("faulty", "part/stray", False)
    assert [run["outcome"] for run in found["nodes"]] == ["ran", "ran", "failed inside", "failed", "not reached"]


def test_a_good_graph_ends_well(device: Driver, folder):
    code = "from graphdsl.cli import main; main()"
    ended = run(device, folder, code, "debug", "graph.py:build", "-d", named(device), "-p", "part/offset=0")
    assert ended.returncode == 0, ended.stderr
    assert "5 ran" in ended.stdout


def test_a_fault_names_its_graph_wherever_it_is_reported(device: Driver, folder):
    ended = run(device, folder, "import runpy; sys.path.insert(0, '.'); runpy.run_path('reports.py')", named(device))
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    first, *later = json.loads(ended.stdout)
    assert (first["graph"], first["code"]) == ("faulty", 700)
    if device.emulated:  # it knows the node, and goes on
        assert first["node"] == "part/stray"
        assert later == [None] * 5
        return
    assert first["node"] is None
    assert first["in_flight"] == [["faulty", 1, 1]]
    assert "graphdsl debug" in first["text"]
    for heard in later:
        assert (heard["graph"], heard["code"]) == ("faulty", 700)
        assert "was lost before" in heard["text"]
