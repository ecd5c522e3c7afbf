"""Each library says whether it is there; where there is a GPU, each is measured a little."""

import shutil
import subprocess
import sys

import pytest

from graphdsl.bench.measure import Budget
from graphdsl.bench.peers import PEERS, Setting, c, peer_module
from graphdsl.bench.records import OURS, Case
from graphdsl.bench.run import make_setting, measure_peer
from graphdsl.bench.shapes import SHAPES

METRICS = {"first_launch_api", "first_launch_total", "repeat_launch_api", "repeat_launch_total", "repeat_launch_device"}


@pytest.mark.parametrize("name", PEERS)
def test_a_library_says_whether_it_is_there(name):
    module = peer_module(name)
    reason = module.unavailable()
    assert reason is None or (isinstance(reason, str) and reason)
    assert callable(module.measure)
    assert set(PEERS[name].shapes) <= set(SHAPES)


@pytest.mark.parametrize("name", ["cupy", "torch", "warp"])
def test_a_library_that_is_not_installed_says_so(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    assert "is not installed" in peer_module(name).unavailable()


def test_without_a_compiler_there_is_no_c_program(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "neither nvcc nor cc" in c.unavailable()


def test_what_the_compilers_say_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(c, "_driver_library", list)
    refused = subprocess.CompletedProcess([], 1, "", "no libcuda")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: refused)
    with pytest.raises(RuntimeError, match="nvcc: no libcuda; cc: no libcuda"):
        c.compile_peer(tmp_path)


def test_the_c_program_is_correct_c():
    include = [option.replace("-I", "-isystem") for option in c._include()]
    if not shutil.which("cc") or not include:
        pytest.skip("there is no C compiler, or no cuda.h")
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c11", "-D_POSIX_C_SOURCE=199309L"]
    command = ["cc", "-fsyntax-only", *strict, *include, str(c.SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("quick", "nodes", "least"),
    [(False, 1, 5), (False, 1000, 5), (False, 10_000, 3), (False, 100_000, 1), (True, 1000, 3), (True, 100_000, 1)],
)
def test_large_graphs_are_built_less_often(quick, nodes, least):
    budget = Setting(quick=quick).budget(Case("chain", nodes))
    assert isinstance(budget, Budget)
    assert budget.least == least


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return make_setting(tmp_path_factory.mktemp("kernel"), quick=True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PEERS)
def test_a_library_that_is_there_is_measured(name, setting):
    found, reason = measure_peer(name, [Case("chain", 2), Case("chain", 100)], setting, 120.0)
    if reason is not None and "not installed" in reason:
        pytest.skip(reason)
    assert reason is None
    for nodes in (2, 100):
        times = {record.metric: record.median for record in found if record.nodes == nodes}
        assert times.keys() >= METRICS
        assert all(times[metric] > 0 for metric in METRICS - {"repeat_launch_api"})


@pytest.mark.gpu
def test_our_updates_are_measured(setting):
    found, _ = measure_peer(OURS, [Case("diamond", 100)], setting, 120.0)
    metrics = {record.metric for record in found}
    assert {"update", "update_grid", "node_update", "update_flat_begin", "update_at_40000"} <= metrics
    assert {"change_by_param_1", "change_by_node_50", "change_whole_100", "change_by_exec_10"} <= metrics


@pytest.mark.gpu
def test_the_kernel_has_the_parameters_that_other_libraries_pass(setting):
    from cuda.bindings import driver

    from graphdsl.bench.peers import gpu

    gpu.use_primary_context()
    library = gpu.call(driver.cuLibraryLoadFromFile, setting.cubin.encode(), None, None, 0, None, None, 0)
    kernel = gpu.call(driver.cuLibraryGetKernel, library, setting.entry.encode())
    sizes = [gpu.call(driver.cuKernelGetParamInfo, kernel, index)[1] for index in range(9)]
    assert sizes == [8] * 7 + [4, 4]
