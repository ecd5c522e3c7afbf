"""Products of weights with one vector, for large models, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import matvec, packing, streaming
from graphdsl.kernels.matvec import Shape

import graphdsl as gd

from . import reference
from .test_decode import matrix, numbers


def check_matvec(launch, columns, rows, name, eps=None, add=False, **options):
    rng = np.random.default_rng(columns)
    x, gain = numbers(rng, columns, scale=3), 1 + numbers(rng, columns, scale=0.1)
    weights, dense = matrix(rng, rows, columns, name)
    y = numbers(rng, rows)
    given = x.astype(np.float64) if eps is None else reference.rms_norm(x, gain, eps)
    expected = dense @ given + (y if add else 0)
    made = matvec.matvec(columns, rows, weights=name, eps=eps, add=add, **options)
    launch(*made, x, gain, weights, y)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(y, expected, rtol=0, atol=scale * (1e-4 if name == "bf16" else 1e-5))


@pytest.mark.parametrize(
    ("name", "eps", "add", "columns", "shape"),
    [
        ("q4_1", 1e-5, False, 384, Shape(2, 1, 1, 2, 1, 1)),
        ("q4_0", None, True, 128, Shape(2, 1, 1, 1, 4)),
        ("bf16", 1e-5, True, 384, Shape(2, 1, 1, 1, 2, 2)),
        ("f16", None, False, 128, Shape(1, 1, 1, 2, 1)),
    ],
)
def test_matvec(launch, name, eps, add, columns, shape):
    # A block for more than one tile, and an odd number of turns for two warps.
    check_matvec(launch, columns, 64 if shape.tiles == 2 else 32, name, eps, add, shape=shape, multiprocessors=1)


def test_with_little_shared_memory(launch, monkeypatch):
    monkeypatch.setattr(streaming, "_SHARED_BYTES", 0)
    matvec.matvec.cache_clear()
    check_matvec(launch, 128, 32, "q4_0", shape=Shape(2, 1), multiprocessors=1)
    matvec.matvec.cache_clear()


def test_the_widest_vector_fits_shared_memory():
    kernel, grid, threads = matvec.matvec(11008, 64, weights="q4_1", shape=Shape(16, 1, 2))
    graph = gd.Graph("wide")
    x, y = graph.device_array("x", 11008, np.float32), graph.device_array("y", 64, np.float32)
    packed = matrix(np.random.default_rng(0), 64, 11008, "q4_1")[0]
    weights = tuple(graph.device_array(f"weights{i}", part.shape, part.dtype) for i, part in enumerate(packed))
    graph.kernel(kernel, grid=grid, block=threads, args=(x, x, weights, y))
    graph.check().raise_for_errors()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [None, Shape(8, 1, 2, 2, 4), Shape(16, 1, 2, 1, 2, 1)])
@pytest.mark.parametrize("name", ["q4_1", "q4_0", "f16", "bf16"])
@pytest.mark.parametrize(("columns", "rows"), [(4096, 4096), (11008, 4096)])
def test_matvec_of_a_model(launch_on_gpu, name, columns, rows, shape):
    check_matvec(launch_on_gpu, columns, rows, name, 1e-5, True, shape=shape)


def check_gate_up(launch, hidden, units, name, **options):
    rng = np.random.default_rng(units)
    x, gain = numbers(rng, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    (gate, dense_gate), (up, dense_up) = (matrix(rng, units, hidden, name) for _ in range(2))
    normed = reference.rms_norm(x, gain)
    expected = reference.silu(dense_gate @ normed) * (dense_up @ normed)
    y = np.empty(units, np.float32)
    both = packing.interleaved(gate, up, units, 8)
    launch(*matvec.matvec_gate_up(hidden, units, weights=name, **options), x, gain, both, y)
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


def test_matvec_gate_up(launch):
    check_gate_up(launch, 128, 16, "bf16", shape=Shape(1))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["q4_1", "bf16"])
def test_matvec_gate_up_of_a_model(launch_on_gpu, name):
    check_gate_up(launch_on_gpu, 4096, 11008, name)


def check_qkv(launch, position, name, *, hidden, heads, kv_heads, head_size, **options):
    rng = np.random.default_rng(position)
    positions = position + 4
    x, gain = numbers(rng, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    projection, dense = matrix(rng, (heads + 2 * kv_heads) * head_size, hidden, name)
    table = packing.rotary_table(positions, head_size)
    width = kv_heads * head_size
    keys, values = (np.zeros((positions, width), np.float16) for _ in range(2))
    q = np.empty(heads * head_size, np.float32)
    made = dense @ reference.rms_norm(x, gain)
    expected_q, expected_k, expected_v = np.split(made, [q.size, q.size + width])
    launch(
        *matvec.matvec_qkv_rotary_append(hidden, heads, kv_heads, head_size, weights=name, **options),
        *(x, gain, projection, table.reshape(-1), np.array([position], np.int32)),
        *(q, keys.reshape(-1), values.reshape(-1)),
    )
    np.testing.assert_allclose(q, reference.rotated(expected_q, table[position]), rtol=1e-3, atol=1e-3)
    expected_k = reference.rotated(expected_k, table[position])
    np.testing.assert_allclose(keys[position].astype(np.float64), expected_k, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(values[position].astype(np.float64), expected_v, rtol=2e-3, atol=2e-3)
    assert np.count_nonzero(keys.any(axis=1)) == 1


def test_matvec_qkv_rotary_append(launch):
    check_qkv(launch, 3, "q4_1", hidden=128, heads=2, kv_heads=1, head_size=32, shape=Shape(1))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["q4_1", "bf16"])
def test_matvec_qkv_rotary_append_of_a_model(launch_on_gpu, name):
    check_qkv(launch_on_gpu, 17, name, hidden=4096, heads=32, kv_heads=32, head_size=128)


def check_best(launch, hidden, vocabulary, name, **options):
    rng = np.random.default_rng(vocabulary)
    x, gain = numbers(rng, hidden, scale=3), 1 + numbers(rng, hidden, scale=0.1)
    table, dense = matrix(rng, vocabulary, hidden, name)
    best = np.zeros(1, np.int64)
    launch(*matvec.matvec_best(hidden, vocabulary, weights=name, **options), x, gain, table, best)
    assert 0x7FFFFFFF - (best[0] & 0x7FFFFFFF) == (dense @ reference.rms_norm(x, gain)).argmax()


def test_matvec_best(launch):
    check_best(launch, 128, 48, "bf16", shape=Shape(1), multiprocessors=1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["q4_1", "bf16"])
def test_matvec_best_of_a_model(launch_on_gpu, name):
    check_best(launch_on_gpu, 4096, 32000, name)


def test_matrices_without_whole_tiles_are_refused():
    with pytest.raises(ValueError, match="40 rows of 128 weights"):
        matvec.matvec(128, 40)
