"""The examples run as a user runs them, and the one of the README finds what NumPy finds."""

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest

import graphdsl as gd

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def ecg():
    pytest.importorskip("pywt")
    yield load(EXAMPLES / "ecg.py")
    del sys.modules["ecg"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(path, tmp_path):
    pytest.importorskip("pywt")
    pytest.importorskip("matplotlib")
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    for name in [word for line in done.stdout.splitlines() for word in line.split() if word.startswith("out/")]:
        check_picture(tmp_path / name)


def test_the_example_of_the_readme_goes_on_without_graphviz(ecg, tmp_path, monkeypatch, capsys):
    """As on a machine without GLib, which the wheel of pygraphviz needs."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    ecg.main()
    said = capsys.readouterr().out.splitlines()
    assert "Graphviz, which could not be loaded" in said[0]
    assert said[-1] == "Pictures: out/ecg.dot (the graph), out/ecg-beats.png (signal and beats)"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"ecg.dot", "ecg-beats.png"}


def check_picture(path: Path) -> None:
    content = path.read_bytes()
    if path.suffix == ".svg":
        assert xml.etree.ElementTree.fromstring(content).tag.endswith("svg")
    elif path.suffix == ".png":
        assert content.startswith(b"\x89PNG")
    else:
        assert content


DEVICES = [
    pytest.param(lambda: gd.emulator(order="declared"), id="emulator"),
    pytest.param(lambda: gd.emulator(order="reverse"), id="emulator-reverse"),
    pytest.param(gd.cuda, id="cuda", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("device", DEVICES)
def test_the_graph_finds_the_beats_that_numpy_finds(ecg, device):
    raw = ecg.pywt.data.ecg()
    with ecg.build().instantiate(device()) as exe:
        exe["raw"][:] = raw
        exe["taps"][:] = ecg.bandpass_taps()
        for n, threshold, window in [(300, 0.25, 54), (260, 0.5, 30)]:
            found = ecg.detect(exe, n, threshold, window)
            beats, energy = ecg.reference(raw[:n], threshold, window)
            assert found.beats.tolist() == beats.tolist() == [190]
            np.testing.assert_allclose(found.energy, energy, rtol=1e-3, atol=1e-5 * energy.max())


def test_the_detector_has_no_findings(ecg):
    report = ecg.build().check()
    assert report.ok, str(report)
    assert not list(report), str(report)


def test_the_band_pass_passes_its_band(ecg):
    taps = ecg.bandpass_taps()
    frequency = np.fft.rfftfreq(4096, 1 / ecg.RATE)
    gain = np.abs(np.fft.rfft(taps, 4096))
    assert gain[0] == pytest.approx(0, abs=1e-12)
    assert gain[(frequency > 7) & (frequency < 12)].min() > 0.8
    assert gain[frequency > 25].max() < 0.05


def test_the_sampling_rate_is_what_the_mains_say(ecg):
    raw = ecg.pywt.data.ecg()
    steps = np.diff(raw) * np.hanning(len(raw) - 1)
    frequency = np.fft.rfftfreq(1 << 16, 1 / ecg.RATE)
    line = (frequency > 50) & (frequency < 70)
    assert frequency[line][np.abs(np.fft.rfft(steps, 1 << 16))[line].argmax()] == pytest.approx(60, abs=0.2)


def test_the_picture_in_the_readme_is_of_this_graph(ecg):
    graph = ecg.build().to_networkx()
    picture = xml.etree.ElementTree.parse(EXAMPLES.parent / "images" / "ecg.svg")
    titles = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")}
    assert titles >= set(graph), "run make demo and copy out/ecg.svg to docs/images"
    assert titles >= {f"{source}->{target}" for source, target in graph.edges}
