"""Find the heartbeats in an electrocardiogram: the QRS detector of Pan and Tompkins as a CUDA graph.

    python docs/examples/ecg.py

The detector (J. Pan and W. J. Tompkins, "A Real-Time QRS Detection Algorithm", IEEE Transactions on Biomedical
Engineering 32(3), 1985) passes the band where the QRS complex has its energy, differentiates, squares, and takes the
mean over a moving window: a beat is a peak of that energy above a threshold between the noise level and the signal
level. Here the whole record is at hand, so the filters are centred and delay nothing, the two levels are those of the
whole record, and each beat is placed on its R wave: the largest deviation from the baseline within the window.

The record is the one that PyWavelets ships, ``pywt.data.ecg()``: 1024 samples, in units of the converter. Its source
and sampling rate are not stated, but its spectrum has a line at 0.166 of the sampling rate and another at twice that:
the 60 Hz of the mains. So it has 360 samples a second, as the records of the MIT-BIH Arrhythmia Database do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pywt.data
from numba import cuda

import graphdsl as gd
from graphdsl import kernels

RATE = 360  # samples a second
LENGTH = 1024  # samples that the graph has room for
BAND = (5.0, 15.0)  # Hz
TAPS = RATE // 5 + 1
REFRACTORY = RATE // 5  # 200 ms, within which no heart beats twice
BASELINE = np.int32(RATE * 3 // 5)  # 600 ms: longer than a QRS complex and its T wave, shorter than a breath
BLOCK = 128
OUT = Path("out")


@cuda.jit
def derivative(x, y, rate):
    """Five-point derivative of the paper, per second; the first and last sample are repeated beyond the ends."""
    last = x.size - 1
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        near = x[min(i + 1, last)] - x[max(i - 1, 0)]
        far = x[min(i + 2, last)] - x[max(i - 2, 0)]
        y[i] = rate / np.float32(8) * (np.float32(2) * near + far)


@cuda.jit
def pick(energy, flat, statistics, beats, threshold, window, refractory):
    """``beats[i]`` is the sample of the R wave where the energy has a peak at ``i`` that makes a beat, else -1."""
    size = energy.size
    signal = statistics[0]
    noise = statistics[1] / np.float32(size)
    for i in range(cuda.grid(1), size, cuda.gridsize(1)):
        peak = energy[i] > noise + threshold * (signal - noise)
        if peak:
            for j in range(max(i - refractory, 0), min(i + refractory + 1, size)):
                # Of equal samples the first is the peak.
                if energy[j] > energy[i] or (energy[j] == energy[i] and j < i):
                    peak = False
        beat = -1
        if peak:
            beat = max(i - window // 2, 0)
            for j in range(beat, min(i - window // 2 + window, size)):
                if abs(flat[j]) > abs(flat[beat]):
                    beat = j
        beats[i] = beat


def build() -> gd.Graph:
    """The detector: it reads ``raw`` and ``taps``, and writes ``beats``, ``energy`` and ``levels``."""
    g = gd.Graph("ecg")
    n = g.param("n", np.int32, default=LENGTH)
    threshold = g.param("threshold", np.float32, default=0.25)
    window = g.param("window", np.int32, default=RATE * 150 // 1000)

    raw = g.host_array("raw", LENGTH, np.int32)
    taps = g.host_array("taps", TAPS, np.float32)
    beats = g.host_array("beats", LENGTH, np.int32)
    energy = g.host_array("energy", LENGTH, np.float32)
    levels = g.host_array("levels", 2, np.float32)

    samples = g.device_array("samples", LENGTH, np.int32)[:n]
    response = g.device_array("response", TAPS, np.float32)
    ecg, passed, slope, power, mean, wander, flat = (
        g.device_array(name, LENGTH, np.float32)[:n]
        for name in ("ecg", "passed", "slope", "power", "mean", "wander", "flat")
    )
    statistics = g.device_array("statistics", 2, np.float32)
    found = g.device_array("found", LENGTH, np.int32)[:n]

    each = {"grid": gd.cdiv(n, BLOCK), "block": BLOCK}  # one thread a sample
    once = {"grid": 1, "block": 256}  # one block strides over the whole record

    load = g.memcpy(samples, raw[:n], name="load")
    load_taps = g.memcpy(response, taps, name="load_taps")
    convert = g.kernel(kernels.cast, **each, args=(samples, ecg), name="convert")
    with g.scope("filter"), g.sequence():
        bandpass = g.kernel(kernels.fir, **each, args=(ecg, response, passed), name="bandpass")
        g.kernel(derivative, **each, args=(passed, slope, np.float32(RATE)))
        g.kernel(kernels.square, **each, args=(slope, power))
        integrate = g.kernel(kernels.moving_mean, **each, args=(power, mean, window), name="integrate")
    with g.scope("baseline"), g.sequence():
        follow = g.kernel(kernels.moving_mean, **each, args=(ecg, wander, BASELINE), name="follow")
        remove = g.kernel(kernels.subtract, **each, args=(ecg, wander, flat), name="remove")
    with g.scope("levels"):
        signal = g.kernel(kernels.block_max, **once, args=(mean, statistics[0:1]), name="signal")
        noise = g.kernel(kernels.block_sum, **once, args=(mean, statistics[1:2]), name="noise")
    decide = g.kernel(pick, **each, args=(mean, flat, statistics, found, threshold, window, REFRACTORY))
    store_beats = g.memcpy(beats[:n], found, name="store_beats")
    store_energy = g.memcpy(energy[:n], mean, name="store_energy")
    store_levels = g.memcpy(levels, statistics, name="store_levels")

    load >> convert >> [bandpass, follow]
    load_taps >> bandpass
    integrate >> [signal, noise] >> decide
    remove >> decide >> store_beats
    integrate >> store_energy
    [signal, noise] >> store_levels
    return g


def bandpass_taps() -> np.ndarray:
    """Impulse response of the band-pass: a windowed sinc with no gain at 0 Hz and a gain of 1 in mid-band."""
    time = (np.arange(TAPS) - TAPS // 2) / RATE
    low, high = BAND
    shape = np.hamming(TAPS)
    taps = shape * (2 * high * np.sinc(2 * high * time) - 2 * low * np.sinc(2 * low * time))
    taps -= shape * taps.sum() / shape.sum()
    return taps / np.sum(taps * np.cos(2 * np.pi * np.sqrt(low * high) * time))


def reference(raw: np.ndarray, threshold: float, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The same algorithm in NumPy, in double precision: the samples of the beats, and the energy."""
    ecg = raw.astype(np.float64)
    passed = np.convolve(np.pad(ecg, TAPS // 2, mode="edge"), bandpass_taps(), mode="valid")
    slope = RATE / 8 * np.convolve(np.pad(passed, 2, mode="edge"), [1, 2, 0, -2, -1], mode="valid")
    energy = moving_mean(slope**2, window)
    flat = np.abs(ecg - moving_mean(ecg, BASELINE))
    limit = energy.mean() + threshold * (energy.max() - energy.mean())
    beats = []
    for i in np.flatnonzero(energy > limit):
        first = max(i - REFRACTORY, 0)
        if first + np.argmax(energy[first : i + REFRACTORY + 1]) == i:
            first = max(i - window // 2, 0)
            beats.append(first + np.argmax(flat[first : i - window // 2 + window]))
    return np.array(beats, int), energy


def moving_mean(x: np.ndarray, width: int) -> np.ndarray:
    padded = np.pad(x, (width // 2, width - 1 - width // 2), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, width).mean(axis=1)


@dataclass
class Detection:
    """What one launch found: the params, the samples of the beats, the energy, and the threshold in its units."""

    params: dict[str, float]
    beats: np.ndarray
    energy: np.ndarray
    limit: float

    def __str__(self) -> str:
        params = ", ".join(f"{name} = {value}" for name, value in self.params.items())
        return f"{params}: beats at {', '.join(f'{time:.3f}' for time in self.beats / RATE)} s"


def detect(exe: gd.GraphExec, n: int, threshold: float, window: int) -> Detection:
    """Update the params, launch, and read the results."""
    exe.update(n=n, threshold=threshold, window=window)
    exe.launch()
    exe.synchronize()
    found = exe["beats"][:n]
    signal, noise = exe["levels"][0], exe["levels"][1] / n
    limit = noise + threshold * (signal - noise)
    return Detection(
        {"n": n, "threshold": threshold, "window": window}, found[found >= 0], exe["energy"][:n].copy(), limit
    )


def plot(path: Path, raw: np.ndarray, runs: list[Detection]) -> None:
    """The record with the beats of each run, and the energy with the threshold of each run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(10, 5.5), sharex=True, layout="constrained")
    above.plot(np.arange(len(raw)) / RATE, raw, color="0.3", linewidth=1)
    for size, run, colour in zip((160, 50), runs, ("C3", "C0")):
        label = f"threshold = {run.params['threshold']}, window = {run.params['window']}"
        above.scatter(run.beats / RATE, raw[run.beats], size, "none", edgecolors=colour, linewidths=2)
        below.plot(np.arange(len(run.energy)) / RATE, run.energy, color=colour, label=label)
        below.axhline(run.limit, color=colour, linestyle="--", linewidth=1)
    above.set(ylabel="ECG (converter units)", title="Heartbeats found by one CUDA graph, before and after an update")
    above.margins(y=0.12)
    below.set(ylabel="energy, and threshold", xlabel="time (s)", xlim=(0, len(raw) / RATE))
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw(graph: gd.Graph) -> list[Path]:
    """The graph as a picture, where Graphviz can be loaded, and in Graphviz' language, which needs no Graphviz."""
    written = []
    try:
        written.append(graph.draw(OUT / "ecg.svg"))
    except gd.GraphdslError as problem:
        print(f"No picture of the graph: {problem}")
    return [*written, graph.draw(OUT / "ecg.dot")]


def main() -> None:
    OUT.mkdir(exist_ok=True)
    graph = build()
    graph.check().raise_for_errors()
    pictures = draw(graph)
    raw = pywt.data.ecg()
    with graph.instantiate() as exe:
        print(f"Built {graph!r} on {exe.device.name}; launched it with")
        exe["raw"][:] = raw
        exe["taps"][:] = bandpass_taps()
        paper = detect(exe, n=LENGTH, threshold=0.25, window=54)
        strict = detect(exe, n=LENGTH, threshold=0.9, window=36)
        half = detect(exe, n=LENGTH // 2, threshold=0.25, window=54)

    for run in (paper, strict, half):
        print(f"  {run}")
        n, *others = run.params.values()
        beats, energy = reference(raw[:n], *others)
        np.testing.assert_array_equal(run.beats, beats)
        np.testing.assert_allclose(run.energy, energy, rtol=1e-3, atol=1e-5 * energy.max())
    print(f"NumPy finds the same beats: {60 * RATE / np.diff(paper.beats).mean():.0f} a minute")

    plot(OUT / "ecg-beats.png", raw, [paper, strict])
    print(f"Pictures: {' and '.join(map(str, pictures))} (the graph), {OUT}/ecg-beats.png (signal and beats)")


if __name__ == "__main__":
    main()
