"""Kernels of rows, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import packing

from graphdsl import kernels

from . import reference
from .test_decode import numbers

LAUNCHES = [(1, 32), (3, 64), (9, 288)]  # fewer blocks than rows, as many, more; and more than eight warps
ROWS, COLUMNS = 5, 70


@pytest.mark.parametrize(("grid", "block"), LAUNCHES)
def test_softmax(launch, grid, block):
    x = numbers(np.random.default_rng(0), ROWS, COLUMNS, scale=20)
    y = np.empty_like(x)
    launch(kernels.softmax, grid, block, x, y, np.float32(1.5))
    np.testing.assert_allclose(y, reference.softmax(x / 1.5), rtol=1e-4, atol=1e-7)
    launch(kernels.softmax, grid, block, x, x, np.float32(1.5))
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(("grid", "block"), LAUNCHES)
def test_argmax(launch, grid, block):
    x = -1 - np.abs(numbers(np.random.default_rng(0), ROWS, COLUMNS))
    x[1, 3] = x[1, 69] = x[2, 69] = -0.5
    x[3, 40] = 2
    index = np.full(ROWS, -1, np.int32)
    launch(kernels.argmax, grid, block, x, index)
    assert index.tolist() == x.argmax(axis=1).tolist()


@pytest.mark.parametrize(("grid", "block"), LAUNCHES)
def test_rms_norm(launch, grid, block):
    rng = np.random.default_rng(0)
    x, gain = numbers(rng, ROWS, COLUMNS, scale=4), numbers(rng, COLUMNS)
    y = np.empty_like(x)
    launch(kernels.rms_norm, grid, block, x, gain, y, np.float32(1e-5))
    np.testing.assert_allclose(y, reference.rms_norm(x, gain), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("grid", "block"), LAUNCHES)
def test_rotary_embedding(launch, grid, block):
    x = numbers(np.random.default_rng(0), ROWS, 2, 8)
    positions, table = np.array([0, 3, 1, 9, 3], np.int32), packing.rotary_table(10, 8)
    y = np.empty_like(x)
    launch(kernels.rotary_embedding, grid, block, x, table, positions, y)
    expected = reference.rotated(x.reshape(ROWS, 16), table[positions]).reshape(x.shape)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
