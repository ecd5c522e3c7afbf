import json
import re
import subprocess
import sys
import textwrap

import pytest

import graphdsl as gd
from graphdsl import cli

GRAPH = """
    import numpy as np
    from numba import cuda

    import graphdsl as gd

    @cuda.jit
    def scale(x, y, gain, n):
        i = cuda.grid(1)
        if i < n:
            y[i] = gain * x[i]

    def fill(raw):
        raw[:] = np.arange(raw.size)

    g = gd.Graph("demo")
    n = g.param("n", np.int32, default=64)
    gain = g.param("gain", np.float32, default=2.0)
    raw, out = g.host_array("raw", 64, np.float32), g.host_array("out", 64, np.float32)
    x, y = g.device_array("x", 64, np.float32), g.device_array("y", 64, np.float32)
    with g.sequence():
        g.host(fill, args=(raw,))
        g.memcpy(x, raw, name="load")
        g.kernel(scale, grid=gd.cdiv(n, 32), block=32, args=(x, y, gain, n), name="scale")
        g.memcpy(out, y, name="store")
"""

CYCLE = """
    import graphdsl as gd

    g = gd.Graph("round")
    a, b = g.empty(name="a"), g.empty(name="b")
    a >> b >> a
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line in an empty folder over the text of a graph file; gives status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(text, command, *arguments):
        (tmp_path / "graph.py").write_text(textwrap.dedent(text))
        with pytest.raises(SystemExit) as ended:
            cli.main([command, "graph.py", *arguments])
        return ended.value.code, *capsys.readouterr()

    yield call
    sys.modules.pop("graphdsl_file_graph", None)


def rows(table):
    """The cells of the rows of a table, by their first cell."""
    return {cells[0]: cells for cells in (re.split(r"\s{2,}", line.strip()) for line in table.splitlines())}


# check


def test_check_says_that_all_is_well(run):
    status, said, _ = run(GRAPH, "check")
    assert status == 0
    assert said.startswith("graph 'demo' on sm_90: ")


def test_check_holds_to_the_target(run):
    text = GRAPH.replace("block=32", "block=32, shared_bytes=150_000")
    assert run(text, "check", "--target", "sm_90")[0] == 0
    status, said, _ = run(text, "check", "--target", "sm_86")
    assert status == 2
    assert "150000" in said.replace(",", "")


def test_check_fails_for_errors_and_lists_them(run):
    status, said, problem = run(CYCLE, "check")
    assert (status, problem) == (2, "")
    assert "GD101" in said
    assert "a -> b -> a" in said


@pytest.mark.parametrize(("text", "status"), [(GRAPH, 0), (CYCLE, 2)])
def test_check_gives_json(run, text, status):
    ended, said, _ = run(text, "check", "--json")
    report = json.loads(said)
    assert ended == status
    assert report["ok"] == (status == 0)
    assert report["target"] == "sm_90"
    assert ["GD101" in found["code"] for found in report["findings"] if found["severity"] == "error"] == [True] * (
        status // 2
    )


SOURCES = """
    import numpy as np

    import graphdsl as gd

    CODE = '''
    extern "C" __global__ void scale(const float* x, float* y, float gain, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = gain * x[i];
    }'''

    g = gd.Graph("sources")
    n = g.param("n", np.int32, default=64)
    x, y = g.device_array("x", 64, np.float32), g.device_array("y", 64, np.float32)
    scale = gd.cuda_source(CODE, "scale")
    g.memset(x, 1) >> g.kernel(scale, grid=gd.cdiv(n, 32), block=32, args=(x, y, 2.0, n), name="run")
"""


def test_kernels_in_other_languages_need_no_gpu(run):
    assert run(SOURCES, "check")[0] == 0
    assert "scale<<<cdiv(n, 32), 32>>>" in run(SOURCES, "dot")[1]
    status, said, _ = run(SOURCES, "trace")
    assert status == 0
    assert "scale(float32*, float32*, float32, int32)" in said
    status, said, _ = run(SOURCES.replace("2.0, n)", "n, 2.0)"), "check", "--json")
    assert status == 2
    found = [(found["code"], found["node"], found["field"]) for found in json.loads(said)["findings"]]
    assert [each for each in found if each[0] != "GD702"] == [
        ("GD226", "run", "argument 'gain'"),
        ("GD226", "run", "argument 'n'"),
    ]


# dot, draw, show


def test_dot_prints_the_text_that_the_graph_gives(run):
    status, said, _ = run(GRAPH, "dot")
    assert status == 0
    assert said.startswith('digraph "demo" {')
    assert '"load" -> "scale"' in said
    assert "operand" not in said
    assert 'class="operand"' in run(GRAPH, "dot", "--operands")[1]


def test_dot_writes_a_file(run, tmp_path):
    status, said, _ = run(GRAPH, "dot", "-o", "demo.dot")
    assert (status, said) == (0, "demo.dot\n")
    assert (tmp_path / "demo.dot").read_text(encoding="utf-8").startswith('digraph "demo"')


def test_draw_writes_a_picture_named_after_the_graph(run, tmp_path):
    status, said, _ = run(GRAPH.replace('"demo"', '"../de mo"'), "draw")
    assert (status, said) == (0, ".._de_mo.svg\n")
    assert (tmp_path / ".._de_mo.svg").read_bytes().startswith(b"<?xml")


def test_draw_writes_what_the_suffix_names(run, tmp_path):
    assert run(GRAPH, "draw", "-o", "demo.png")[:2] == (0, "demo.png\n")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("path", "said"), [("demo.bmp", "svg, png, pdf"), ("nowhere/demo.svg", "No such file")])
def test_draw_says_why_it_cannot_write(run, path, said):
    status, _, problem = run(GRAPH, "draw", "-o", path)
    assert status == 2
    assert said in problem


def test_show_prints_levels_and_operands(run):
    status, said, _ = run(GRAPH, "show")
    assert status == 0
    assert rows(said)["2"] == ["2", "scale", "kernel", "scale<<<cdiv(n, 32), 32>>>", "load"]
    assert rows(said)["raw"] == ["raw", "pinned", "float32[64]", "256 B", "2"]
    assert not any(line.endswith(" ") for line in said.splitlines())


def test_show_prints_a_tree(run):
    status, said, _ = run(GRAPH, "show", "--tree")
    assert status == 0
    assert said.splitlines()[:3] == [
        "demo: 4 nodes, 3 edges",
        "└── fill  host  fill()",
        "    ↓ load  memcpy  raw → x, 256 B",
    ]


def test_show_prints_what_nodes_read_and_write(run):
    status, out, _ = run(GRAPH, "show", "--access")
    assert status == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["scale", "x", "x", "reads", "all", "of", "it"] in lines
    assert ["y", "y", "writes", "all", "of", "it"] in lines
    assert any(line[:6] == ["fill", "args[0]", "raw", "unknown,", "so", "reads"] for line in lines)


def test_memory_prints_where_arrays_lie(run, tmp_path):
    status, said, _ = run(GRAPH, "memory", "--svg", "arena.svg")
    assert status == 0
    assert said.startswith("512 B: planned 256 B of 256 B; no plan needs less than 256 B")
    assert rows(said)["x"] == ["x", "0", "256 B", "load to scale", "it lies between nodes"]
    assert rows(said)["y"][:3] == ["y", "256", "256 B"]
    assert said.splitlines()[-1] == "arena.svg"
    assert (tmp_path / "arena.svg").read_text().startswith("<svg")
    assert run(CYCLE, "memory")[0] == 2


def test_memory_as_json(run):
    status, said, _ = run(GRAPH, "memory", "--json")
    assert status == 0
    (arena,) = json.loads(said).values()
    assert (arena["nbytes"], arena["peak_nbytes"], arena["sum_nbytes"], arena["least_nbytes"]) == (512, 256, 256, 256)
    assert [(each["name"], each["offset"], each["planned"]) for each in arena["arrays"]] == [
        ("x", 0, True),
        ("y", 256, False),
    ]


@pytest.mark.parametrize("command", ["dot", "draw"])
def test_edges_are_marked_if_asked_for(run, command, tmp_path):
    status, *_ = run(GRAPH, command, "--access", "-o", "graph.dot")
    assert status == 0
    assert "carries y" in (tmp_path / "graph.dot").read_text()


WIDE = """
    import graphdsl as gd

    g = gd.Graph("wide")
    x = g.device_array("x", (24, 8), "f4")
    for row in range(24):
        g.memset(x[row], 0, name=f"clear{row:02}")
"""


def test_lanes_are_shown_drawn_and_traced(run):
    assert "'wide': 4 lanes" in run(WIDE, "show", "--lanes", "4")[1]
    assert run(WIDE, "dot", "--lanes", "4")[1].count("a lane: added by the plan") == 20
    assert "a lane" not in run(WIDE, "dot")[1]
    assert "cuGraphAddDependencies" not in run(WIDE, "trace", "--lanes", "none")[1]
    assert "begin -> clear00" in run(WIDE, "trace")[1]
    assert run(WIDE, "run", "--device", "emulator", "--lanes", "2")[0] == 0
    status, _, said = run(WIDE, "draw", "--lanes", "many")
    assert status == 2
    assert "lanes are a number of 1 or more" in said


def test_bench_knows_its_names(run, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "roads"])
    assert ended.value.code == 2
    assert "there is no such benchmark" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["dot", "draw", "show"])
def test_a_wrong_graph_is_shown_all_the_same(run, command, tmp_path):
    status, said, problem = run(CYCLE, command)
    assert status == 2
    assert problem.startswith("graphdsl: graph 'round' has 1 error:\n  GD101 ")
    shown = (tmp_path / "round.svg").read_text(encoding="utf-8") if command == "draw" else said
    assert {"dot": "#c62828", "draw": "#c62828", "show": "cycle: a → b → a"}[command] in shown


# trace, run


FUSIBLE = """
    import numpy as np

    import graphdsl as gd

    @gd.elementwise
    def scale(x, gain):
        return x * gain

    g = gd.Graph("demo")
    x, t, y, z = (g.device_array(name, 64, np.float32) for name in "xtyz")
    clear = g.memset(x, 0, name="clear")
    first = g.elementwise(scale, t, (x, 2.0), name="first")
    second = g.elementwise(scale, y, (t, 2.0), name="second")
    other = g.memset(z, 0, name="other")
    clear >> first >> second >> other
    clear >> second
"""


def test_passes_say_what_they_changed(run, tmp_path):
    status, said, _ = run(FUSIBLE, "passes", "--fuse", "--reduce", "--dead", "y", "-o", "small.dot")
    assert status == 0
    kinds = [line.partition(":")[0] for line in said.splitlines()]
    assert kinds[:-2] == ["node dropped", "operand dropped", "nodes fused", "operand dropped"]
    assert said.splitlines()[-2:] == ["<Graph 'demo': 2 nodes, 1 edges>", "small.dot"]
    assert "first+second" in (tmp_path / "small.dot").read_text()
    assert run(FUSIBLE, "passes", "--reduce")[1].startswith("edge dropped: clear (")
    assert run(GRAPH, "passes", "--reduce")[1].startswith("nothing to change\n")
    assert run(CYCLE, "passes", "--reduce")[0] == 2
    assert run(GRAPH, "passes", "--dead", "nothing")[0] == 2


def test_orders_says_that_the_result_is_the_same(run):
    status, output, _ = run(GRAPH, "orders")
    assert (status, output) == (0, "demo gives the same in its only order\n")


def test_orders_names_the_edge_that_is_missing(run):
    text = (
        GRAPH
        + """
    late = g.memset(x, 0, name="late")
    g.node("load") >> late
    """
    )
    status, output, problem = run(text, "orders", "--seed", "3", "-n", "5")
    assert (status, output) == (1, "")
    assert "Declare the edge scale >> late" in problem
    assert run(text, "orders", "--compare", "raw")[0] == 0
    assert run(text, "orders", "--compare", "out", "--tolerance", "1e9")[0] == 0
    assert run(text, "orders", "--compare", "nothing")[0] == 2


def test_trace_prints_the_calls_in_order(run):
    status, said, _ = run(GRAPH, "trace")
    calls = [line.partition("(")[0] for line in said.splitlines()]
    assert status == 0
    assert [call for call in calls if call.startswith("cuGraph")] == [
        "cuGraphCreate",
        "cuGraphAddHostNode",
        "cuGraphAddMemcpyNode",
        "cuGraphAddKernelNode",
        "cuGraphAddMemcpyNode",
        "cuGraphAddDependencies",
        "cuGraphInstantiateWithParams",
        "cuGraphUpload",
    ]
    assert "target=sm_90" in said
    assert "target=sm_80" in run(GRAPH, "trace", "-t", "sm_80")[1]


def test_a_graph_that_only_a_large_gpu_can_hold_is_traced(run):
    text = """
        import numpy as np
        import graphdsl as gd

        g = gd.Graph("large")
        out = g.host_array("out", 10**10, np.float32)
        for i in range(10):
            x = g.device_array(f"x{i}", 4 * 10**9, np.float32)
            g.memset(x, 0) >> g.memcpy(out[8 * i : 8 * i + 8], x[:8])
    """
    status, said, _ = run(text, "trace")
    assert status == 0
    assert f"bytes={10 * 16 * 10**9}" in said


def test_run_launches_and_prints_host_arrays(run):
    status, said, _ = run(GRAPH, "run", "--device", "emulator")
    assert status == 0
    assert re.match(r"demo ran on emulator \(sm_90\): launched 1 time in [\d.]+ (s|ms|µs)\n", said)
    assert rows(said)["out"] == ["out", "float32[64]", "0, 2, 4, 6, 8, 10, …", "0", "126", "63"]
    assert "x" not in rows(said)


def test_run_takes_params_launches_and_names(run):
    arguments = ("-d", "emulator", "-p", "gain=-1.5", "-n", "3", "--print", "y", "--print", "gain")
    status, said, _ = run(GRAPH, "run", *arguments)
    assert status == 0
    assert "launched 3 times" in said
    assert rows(said)["y"] == ["y", "float32[64]", "-0, -1.5, -3, -4.5, -6, -7.5, …", "-94.5", "-0", "-47.25"]
    assert rows(said)["gain"] == ["gain", "float64[]", "-1.5", "-1.5", "-1.5", "-1.5"]
    assert "out" not in rows(said)


def test_a_fault_of_the_emulator_names_the_node(run):
    status, _, problem = run(GRAPH, "run", "-d", "emulator", "-p", "n=2")  # leaves most of y unwritten
    assert status == 2
    assert problem.startswith("graphdsl: graph 'demo', node 'store'")


def test_run_prints_arrays_of_every_kind(run):
    text = """
        import numpy as np
        import graphdsl as gd

        g = gd.Graph("kinds")
        source = g.external("source", np.arange(3, dtype=np.int16))
        g.external("complex", np.array([1 + 2j]))
        g.external("none", np.zeros((2, 0)))
        out = g.host_array("out", 3, np.int16, pinned=False)
        g.memcpy(out, source)
    """
    status, said, _ = run(text, "run", "-d", "emulator")
    assert status == 0
    assert rows(said)["source"] == ["source", "int16[3]", "0, 1, 2", "0", "2", "1"]
    assert rows(said)["out"] == ["out", "int16[3]", "0, 1, 2", "0", "2", "1"]
    assert rows(said)["complex"] == ["complex", "complex128[1]", "(1+2j)"]
    assert rows(said)["none"] == ["none", "float64[2, 0]"]


def test_run_chooses_a_device_by_itself(run):
    assert run(GRAPH, "run")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-p", "gain"], "NAME=VALUE"),
        (["-p", "gain=high"], "NAME=VALUE"),
        (["-p", "gian=2"], "Names close to it: gain"),
        (["-p", "n=0.5"], "n"),
        (["-d", "gpu"], "auto, emulator, or cuda:N"),
        (["-d", "cuda:x"], "auto, emulator, or cuda:N"),
        (["-d", "cuda:999"], "cuda(999)"),
        (["--print", "ouch"], "there is no operand of this name"),
        (["-n", "0"], "launches"),
    ],
)
def test_run_refuses_wrong_arguments_with_one_message(run, arguments, said):
    device = [] if "-d" in arguments else ["-d", "emulator"]
    status, output, problem = run(GRAPH, "run", *device, *arguments)
    assert (status, output) == (2, "")
    assert said in problem
    assert "Traceback" not in problem


@pytest.mark.parametrize("command", ["trace", "run"])
def test_a_wrong_graph_is_not_built(run, command):
    status, said, problem = run(CYCLE, command, *(["-d", "emulator"] if command == "run" else []))
    assert (status, said) == (2, "")
    assert "GD101" in problem


def test_a_host_function_that_fails_names_its_line(run):
    status, said, problem = run(GRAPH.replace("np.arange(raw.size)", "1 / 0"), "run", "-d", "emulator")
    assert (status, said) == (2, "")
    assert "node 'fill'" in problem
    assert "ZeroDivisionError" in problem
    assert re.search(r"Raised at .*graph\.py:14\.", problem)


# debug


DYING = """
    import os
    import time

    import graphdsl as gd

    g = gd.Graph("dying")
    with g.sequence():
        g.empty(name="before")
        g.host(lambda: os.abort(), name="abort")
"""


def test_debug_says_what_ran(run):
    status, said, _ = run(GRAPH, "debug", "-d", "emulator", "--here")
    assert status == 0
    assert "graph 'demo' on emulator (sm_90), node by node: 4 ran" in said


def test_debug_names_the_node_that_fails(run):
    status, said, _ = run(GRAPH, "debug", "-d", "emulator", "-p", "n=2", "--here")  # leaves most of y unwritten
    assert status == 1
    assert "store (memcpy): failed" in said
    assert "graph 'demo', node 'store'" in said


def test_debug_names_the_node_over_which_the_process_dies(run):
    status, _, problem = run(DYING, "debug", "-d", "emulator")
    assert status == 1
    assert "graphdsl: node 'abort' failed: the process died of SIGABRT." in problem


def test_debug_gives_up_on_a_node_that_never_ends(run):
    text = DYING.replace("g.host(lambda: os.abort()", "g.host(lambda: time.sleep(600)")
    status, _, problem = run(text, "debug", "-d", "emulator", "--timeout", "1")
    assert status == 1
    assert "graphdsl: node 'abort' failed: it took longer than 1 s." in problem


def test_debug_of_a_graph_with_errors(run):
    assert run(CYCLE, "debug", "-d", "emulator")[0] == 2
    status, _, problem = run(CYCLE, "debug", "-d", "emulator", "--here")
    assert status == 2
    assert "GD101" in problem


# All commands


def test_too_little_memory_is_one_message(run, monkeypatch):
    def load(file):
        raise MemoryError("Unable to allocate 8.00 PiB")

    monkeypatch.setattr(cli, "_load", load)
    status, said, problem = run(GRAPH, "check")
    assert (status, said) == (2, "")
    assert problem == "graphdsl: this machine has too little memory: Unable to allocate 8.00 PiB\n"


@pytest.mark.parametrize("command", ["check", "dot", "draw", "show", "trace", "run"])
def test_a_bad_file_is_one_message_and_status_2(run, command):
    status, said, problem = run("1 / 0\n", command)
    assert (status, said) == (2, "")
    assert problem.startswith("graphdsl: FILE = graph.py:1: importing the file failed: ZeroDivisionError")
    assert "Traceback" not in problem
    assert problem.count("\n") == 1


def test_version_and_help(capsys):
    for arguments, said in (
        (["--version"], f"graphdsl {gd.__version__}"),
        (["--help"], "graphdsl run demo.py -p gain=2.0"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0
        assert said in capsys.readouterr().out


def test_every_command_fits_the_list_in_the_help(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert len(listed.strip().splitlines()) == 12
    assert "..." not in listed


def test_the_command_starts_without_the_heavy_libraries():
    code = "import sys, graphdsl.cli; print({'numba', 'llvmlite', 'cuda.bindings', 'pygraphviz'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ended.stdout == "set()\n"


def test_a_terminal_that_lacks_a_character_gets_the_rest(tmp_path):
    text = "import graphdsl as gd\ng = gd.Graph('größe')\ng.empty(name='→')\n"
    (tmp_path / "graph.py").write_text(text, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", "from graphdsl.cli import main; main()", "show", "--tree", "graph.py"],
        cwd=tmp_path,
        env={"PYTHONIOENCODING": "latin-1", "PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        check=True,
    )
    assert ended.stdout.decode("latin-1").startswith("größe: 1 node, 0 edges\n??? ?  empty")


SEVERAL = """
    import numpy as np

    import graphdsl as gd

    g = gd.Graph("several")
    out = g.host_array("out", 4, np.float32)
    with g.on(1), g.sequence():
        y = g.device_array("y", 4, np.float32)
        g.memset(y, 1)
        g.memcpy(out, y)
"""


def test_a_graph_over_several_devices(run):
    assert run(SEVERAL, "check")[0] == 0
    assert run(SEVERAL, "check", "-t", "sm_90,sm_80")[1].startswith(
        "graph 'several' on device 0 (sm_90), device 1 (sm_80): "
    )
    assert "device=1" in run(SEVERAL, "trace", "-t", "sm_90,sm_80")[1]
    status, said, _ = run(SEVERAL, "run", "--device", "emulator")
    assert status == 0
    assert "1, 1, 1, 1" in said
