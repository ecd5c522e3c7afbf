"""A small model with random weights, and a GGUF file of it, written by the package gguf."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from smollm2.tokenizer import BYTES
from smollm2.weights import Config, random_weights

TINY = Config(hidden=32, layers=2, heads=2, kv_heads=1, head_size=32, mlp=32, vocabulary=320, rope_base=1000.0)
SEED = 10  # of weights with which the first answers are clear


def tiny_vocabulary() -> dict[str, object]:
    """Metadata of a tokenizer: control tokens, all bytes, and the merges that make a few words."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *BYTES]
    merges = []
    for word in ("user", "system", "assistant", "Ġthe", "Ġhello", "ĠÃ©"):
        made = word[0]
        for letter in word[1:]:
            if made + letter not in tokens:
                merges.append(f"{made} {letter}")
                tokens.append(made + letter)
            made += letter
    tokens += [f"<|unused{i}|>" for i in range(TINY.vocabulary - len(tokens))]
    assert len(tokens) == TINY.vocabulary
    kinds = [3 if token.startswith("<|") else 1 for token in tokens]
    kind = {"model": "gpt2", "pre": "smollm", "eos_token_id": 2}
    return {**kind, "tokens": tokens, "merges": merges, "token_type": kinds}


def write_gguf(path: Path, config: Config, **changed: object) -> Path:
    """A GGUF file of a model with random weights, written by the package gguf; ``changed`` replaces metadata."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.mlp)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_rope_dimension_count(config.head_size)
    writer.add_layer_norm_rms_eps(config.epsilon)
    vocabulary = tiny_vocabulary() | changed
    writer.add_tokenizer_model(vocabulary["model"])
    writer.add_tokenizer_pre(vocabulary["pre"])
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_merges(vocabulary["merges"])
    writer.add_token_types(vocabulary["token_type"])
    writer.add_eos_token_id(vocabulary["eos_token_id"])
    for name, tensor in random_weights(config, SEED).tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor.data), raw_dtype=tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
