import json
import os
from importlib import metadata

import pytest
from rich.console import Console

import graphdsl as gd
from graphdsl import cli, doctor
from graphdsl.compile import cache
from graphdsl.errors import CompileError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr("graphdsl.drivers.cuda.unavailable", lambda: "the CUDA driver finds no GPU")


@pytest.fixture
def one_gpu(monkeypatch):
    """A machine with one GPU, as far as the doctor can see."""
    monkeypatch.setattr("graphdsl.drivers.cuda.unavailable", lambda: None)
    monkeypatch.setattr("graphdsl.drivers.cuda.devices", lambda: ["NVIDIA H200"])
    monkeypatch.setattr("graphdsl.drivers.cuda.driver_version", lambda: (13, 0))
    monkeypatch.setattr(gd, "cuda", lambda ordinal: gd.emulator())


def found(diagnosis):
    return {item.name: item for item in diagnosis.items}


def printed(diagnosis):
    console = Console(width=300, color_system=None)
    with console.capture() as captured:
        console.print(diagnosis)
    return captured.get()


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", *arguments])
    return ended.value.code, capsys.readouterr().out


def test_a_machine_without_a_gpu_is_well(folder, no_gpu):
    diagnosis = doctor.examine()
    items = found(diagnosis)
    assert diagnosis.ok
    assert {
        "python",
        "graphdsl",
        "numba-cuda",
        "cuda-core",
        "graphviz",
        "nvvm",
        "nvJitLink",
        "kernels",
        "emulator",
    } <= set(items)
    assert items["numpy"].found == metadata.version("numpy")
    assert items["driver"].state == "absent"
    assert "580" in items["driver"].remedy
    assert items["emulator"].found.endswith("ran a graph of 3 nodes")
    assert items["default"].found.startswith("graphs run on the emulator")
    assert str(folder) in items["kernel cache"].found


def test_extras_are_not_required(folder, no_gpu):
    assert not {"pytest", "matplotlib"} & set(found(doctor.examine()))


def test_a_gpu_is_tried(folder, one_gpu):
    items = found(doctor.examine())
    assert items["driver"].found == "CUDA 13.0, 1 GPU"
    assert items["cuda:0"].state == "ok"
    assert items["default"].found == "graphs run on the first GPU, cuda:0"


def test_a_gpu_that_does_not_run_graphs_is_told(folder, one_gpu, monkeypatch):
    def broken(ordinal):
        raise gd.DriverError("cuInit", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")

    monkeypatch.setattr(gd, "cuda", broken)
    diagnosis = doctor.examine()
    assert not diagnosis.ok
    assert found(diagnosis)["cuda:0"].found == "cuInit returned CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)."


def test_an_old_driver_is_told(folder, one_gpu, monkeypatch):
    monkeypatch.setattr("graphdsl.drivers.cuda.driver_version", lambda: (12, 8))
    assert "CUDA 12.8, 1 GPU; CUDA 13.0 is the oldest" in found(doctor.examine())["driver"].found


def test_a_device_that_computes_wrongly_is_told(folder, no_gpu, monkeypatch):
    monkeypatch.setattr("numpy.array_equal", lambda *_: False)
    item = found(doctor.examine())["emulator"]
    assert item.state == "missing"
    assert "wrong numbers" in item.found


def test_a_missing_package_comes_with_the_command_that_installs_it(folder, no_gpu, monkeypatch):
    real = metadata.version

    def version(name):
        if name == "pygraphviz":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    diagnosis = doctor.examine()
    assert not diagnosis.ok
    assert found(diagnosis)["pygraphviz"].state == "missing"
    assert 'pygraphviz: pip install "pygraphviz>=2.0"' in printed(diagnosis)
    assert "Something that graphs need is missing." in printed(diagnosis)


@pytest.mark.parametrize(
    ("versions", "state"),
    [
        ({}, "ok"),
        ({"cuda-bindings": "13.0.3", "cuda-core": "0.5.1"}, "ok"),
        ({"cuda-bindings": "12.9.4"}, "missing"),
        ({"cuda-bindings": None}, "missing"),
        ({"cuda-core": "2.0.0"}, "missing"),
        ({"cuda-core": "0.4.2"}, "missing"),
    ],
)
def test_the_parts_of_cuda_python_stand_for_it(folder, no_gpu, monkeypatch, versions, state):
    real = metadata.version
    installed = {"cuda-python": None, **versions}

    def version(name):
        found = installed[name] if name in installed else real(name)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)
    item = {item.name: item for item in doctor._packages()}["cuda-python"]
    assert item.state == state
    assert item.found == ("its parts are there" if state == "ok" else item.found)
    assert item.remedy.startswith("" if state == "ok" else 'pip install "cuda-python')


def test_one_defect_does_not_hide_another(folder, no_gpu, monkeypatch):
    def refuse(*_, **__):
        raise CompileError("nvJitLink\n does not link it")

    monkeypatch.setattr("graphdsl.compile.numba.link", refuse)
    monkeypatch.setattr("graphdsl.draw.dot.render", refuse)
    items = found(doctor.examine())
    assert [name for name, item in items.items() if item.state == "missing"] == ["graphviz", "kernels", "emulator"]
    assert "nvJitLink does not link it" in items["kernels"].found


def test_a_stored_image_does_not_hide_a_broken_compiler(folder, no_gpu, monkeypatch):
    assert doctor.examine().ok
    assert list(folder.iterdir())
    monkeypatch.setattr("graphdsl.compile.numba.link", lambda *_, **__: 1 / 0)
    assert found(doctor.examine())["kernels"].state == "missing"


@pytest.mark.parametrize("value", [None, "", "somewhere"])
def test_the_environment_is_left_as_it_was(value, no_gpu, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(cache.VARIABLE, value)
    items = found(doctor.examine())
    assert os.environ.get(cache.VARIABLE) == value
    assert ("off" in items["kernel cache"].found) == (value == "")


def test_the_source_can_be_used_without_installing(folder, no_gpu, monkeypatch):
    def requires(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert doctor.examine().ok


def test_the_command_prints_a_table_or_json(folder, no_gpu, capsys):
    status, said = run(capsys)
    assert status == 0
    assert "Graphs can run here." in said
    status, said = run(capsys, "--json")
    assert status == 0
    report = json.loads(said)
    assert report["ok"] is True
    assert {"area", "name", "state", "found", "remedy"} == set(report["items"][0])


def test_the_command_fails_if_something_is_missing(folder, no_gpu, capsys, monkeypatch):
    monkeypatch.setattr("graphdsl.compile.numba.link", lambda *_, **__: 1 / 0)
    status, said = run(capsys, "--json")
    assert status == 2
    assert json.loads(said)["ok"] is False


@pytest.mark.gpu
def test_every_gpu_of_this_machine_runs_graphs(folder):
    from graphdsl.drivers.cuda import devices

    diagnosis = doctor.examine()
    assert diagnosis.ok
    assert [f"cuda:{i}" for i in range(len(devices()))] == [name for name in found(diagnosis) if "cuda:" in name]
