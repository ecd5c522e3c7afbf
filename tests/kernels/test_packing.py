"""Weights in the formats that kernels load: there and back."""

from __future__ import annotations

import numpy as np
import pytest
from graphdsl.kernels import packing
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

BLOCKS = {"q4_0": 18, "q4_1": 20, "q8_0": 34}
WEIGHTS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 3).map(lambda n: 32 * n)),
    elements=st.floats(-99, 99, width=32),
)


@pytest.mark.parametrize("name", BLOCKS)
@given(data=st.data())
def test_blocks_are_taken_apart_and_joined(name, data):
    size = BLOCKS[name] * data.draw(st.integers(1, 4))
    blocks = data.draw(arrays.arrays(np.uint8, size))
    assert (packing.joined_blocks(packing.split_blocks(blocks, name), name) == blocks).all()


@pytest.mark.parametrize(("name", "bits"), [("q4_0", 4), ("q4_1", 4), ("q8_0", 8), ("f16", 11), ("bf16", 8)])
@settings(deadline=None)
@given(weights=WEIGHTS)
def test_numbers_are_rounded_by_half_a_step(name, bits, weights):
    matrix = packing.packed(weights, name)
    found = packing.unpacked(matrix, name, weights.shape[1])
    if name.startswith("q"):
        blocks = weights.reshape(-1, 32)
        spread = np.abs(blocks).max(axis=1) * 2 if name != "q4_1" else blocks.max(axis=1) - blocks.min(axis=1)
        # The scale is rounded to float16, too; q4_0 ends half a step before its largest number of the other sign.
        step = spread / (2**bits - 1) * (2 if name == "q4_0" else 1)
        most = np.repeat(step * 0.51 + np.abs(blocks).max(axis=1) * 2.0**-9 + 1e-4, 32).reshape(weights.shape)
    else:
        most = np.abs(weights) * 2.0**-bits + 1e-7
    assert (np.abs(found - weights) <= most).all()


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q8_0", "f16", "bf16"])
@settings(deadline=None)
@given(weights=WEIGHTS)
def test_what_was_rounded_stays(name, weights):
    once = packing.unpacked(packing.packed(weights, name), name, weights.shape[1])
    twice = packing.unpacked(packing.packed(once, name), name, weights.shape[1])
    np.testing.assert_allclose(twice, once, rtol=2e-2, atol=np.abs(weights).max() * 1e-2 + 1e-6)


def test_blocks_mean_what_gguf_says():
    gguf = pytest.importorskip("gguf")
    data = np.random.default_rng(0).integers(0, 256, (3, 6, 34), np.uint8)
    for name, nbytes in BLOCKS.items():
        blocks = np.ascontiguousarray(data[..., :nbytes])
        blocks[..., :4:2] = 0x11  # scales that are numbers
        blocks[..., 1:4:2] = 0x2C
        rows = blocks.reshape(3, -1)
        expected = gguf.dequantize(rows, gguf.GGMLQuantizationType[name.upper()])
        np.testing.assert_allclose(
            packing.unpacked(packing.split_blocks(rows, name), name, 6 * 32), expected, rtol=1e-6
        )


def test_by_column_slices_lies_as_its_kernel_reads_it():
    weights, scales = packing.packed(np.random.default_rng(0).standard_normal((3, 64)), "q4_1")
    slices, words = packing.by_column_slices((weights, scales), 64)
    steps = np.concatenate([weights.reshape(3, 2, 16) & 15, weights.reshape(3, 2, 16) >> 4], axis=2).reshape(3, 4, 16)
    for part, row, k, j in np.ndindex(4, 3, 2, 4):
        byte = slices.reshape(4, 3, 2, 4)[part, row, k, j]
        assert (byte & 15, byte >> 4) == (steps[row, part, 8 * k + j], steps[row, part, 8 * k + j + 4])
    assert (words.reshape(2, 3) == scales.reshape(3, 2).T).all()


def test_what_is_no_whole_block_is_refused():
    with pytest.raises(ValueError, match="19 bytes are no whole blocks of q4_0, which have 18 bytes"):
        packing.split_blocks(np.zeros(19, np.uint8), "q4_0")
    with pytest.raises(ValueError, match="'q5_1'"):
        packing.split_blocks(np.zeros(18, np.uint8), "q5_1")
    with pytest.raises(ValueError, match="rows of 48 weights"):
        packing.packed(np.zeros((1, 48)), "q8_0")
    with pytest.raises(ValueError, match="5 rows are no whole turns of 2"):
        packing.interleaved((np.zeros(5),), (np.zeros(5),), 5, 2)
