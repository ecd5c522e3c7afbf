"""The arrays of a model in device memory: which there are, how weights lie in them, and one block for them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from graphdsl.kernels import packing

import graphdsl as gd

from .gguf_file import Tensor
from .weights import Config, Weights

Shape = tuple[tuple[int, ...], Any]
"""Shape and dtype of an array."""

Memory = Mapping[str, Any]
"""What the graphs of a model share, by the names of operands: see `arena`."""

_KINDS: dict[str, tuple[tuple[Any, int], ...]] = {
    "q4_1": ((np.uint8, 2), (np.uint32, 32)),
    "q8_0": ((np.int8, 1), (np.float16, 32)),
    "bf16": ((np.uint16, 1),),
}
"""The arrays of a matrix in each format: dtype, and weights for an element; see `graphdsl.kernels.weights`."""

_ALIGNMENT = 256  # bytes, as cuMemAlloc aligns


def turns(config: Config) -> int:
    """Rows of gate and of up that lie together, in turns, as the kernels of the MLP want them."""
    return 8 if config.large else 16


def table_format(config: Config) -> str:
    """Format of the embedding, of which a step reads one row, or, where it is the head too, all."""
    return "bf16" if config.weights == "bf16" else "q8_0"


class Operands:
    """The arrays that the graphs of a model share, as operands of one of them.

    Parameters
    ----------
    graph : Graph
    config : Config
    context : int
        Tokens that a conversation has room for.
    memory : mapping, optional
        Where the arrays are; without it the graph has arrays of its own.
    sequences : int
        Conversations that there are.

    Attributes
    ----------
    table, head : tuple of Buffer
        The embedding, and the matrix of the head.
    rotary, norm : Buffer
        Cosines and sines of the rotary embedding; the gain of the last norm.
    position, token : Buffer
        The place of the last token in each conversation, and the token itself.
    places : int
        Positions that there are in the caches of keys and values.
    """

    def __init__(
        self, graph: gd.Graph, config: Config, context: int, memory: Memory | None, sequences: int = 1
    ) -> None:
        self.graph = graph
        self.config = config
        self.context = context
        self.memory = memory
        self.sequences = sequences
        self.places = sequences * context
        c = config
        self.table = self.matrix("embedding", table_format(c), c.vocabulary, c.hidden)
        self.head = self.matrix("head", c.weights, c.vocabulary, c.hidden) if c.large else self.table
        self.rotary = self.array("rotary", context * c.head_size, np.float32)
        self.norm = self.array("output_norm", c.hidden, np.float32)
        self.position, self.token = (self.array(name, sequences, np.int32) for name in ("position", "token"))

    def array(self, name: str, shape: int, dtype: Any, scope: str = "") -> Any:
        """An array of the memory that is shared, or else one of the graph itself."""
        if self.memory is None:
            return self.graph.device_array(name, shape, dtype, lifetime="persistent")
        return self.graph.external(name, self.memory[scope + name])

    def matrix(self, name: str, kind: str, rows: int, columns: int, scope: str = "") -> tuple[Any, ...]:
        parts = zip(("weights", "scales"), _KINDS[kind])
        return tuple(self.array(f"{name}_{part}", rows * columns // n, dtype, scope) for part, (dtype, n) in parts)

    def layer(self, i: int) -> dict[str, Any]:
        """What a layer has in memory; to be called in its scope, ``layer0`` and so on."""
        c, scope = self.config, f"layer{i}/"
        matrices = {
            "qkv": (c.query_rows + 2 * c.kv_rows, c.hidden),
            "output": (c.hidden, c.query_rows),
            "gate_up": (2 * c.mlp, c.hidden),
            "down": (c.hidden, c.mlp),
        }
        made: dict[str, Any] = {name: self.matrix(name, c.weights, *shape, scope) for name, shape in matrices.items()}
        for name in ("attn_norm", "ffn_norm"):
            made[name] = self.array(name, c.hidden, np.float32, scope)
        for name in ("keys", "values"):
            made[name] = self.array(name, self.places * c.kv_rows, np.float16, scope)
        return made

    @classmethod
    def shapes(cls, config: Config, context: int, sequences: int = 1) -> dict[str, Shape]:
        """Shape and dtype of all of them, by name."""
        graph = gd.Graph("names")
        shared = cls(graph, config, context, None, sequences)
        for i in range(config.layers):
            with graph.scope(f"layer{i}"):
                shared.layer(i)
        return {name: (operand.shape, operand.dtype) for name, operand in graph.operands.items()}


def contents(weights: Weights, context: int) -> dict[str, np.ndarray]:
    """What the arrays of `Operands` hold before the first launch, by their names."""
    c = weights.config
    made = {
        **{name: np.zeros(1, np.int32) for name in ("position", "token")},
        "best": np.zeros(1, np.int64),
        "output_norm": weights["output_norm"].floats(),
        "rotary": packing.rotary_table(context, c.head_size, c.rope_base).ravel(),
        **_parts("embedding", _matrix(weights["token_embd"], table_format(c))),
    }
    if c.large:
        made |= _parts("head", _matrix(weights["output"], c.weights))
    for i in range(c.layers):
        layer = _layer_contents(weights, i)
        layer |= {name: np.zeros(context * c.kv_rows, np.float16) for name in ("keys", "values")}
        made |= {f"layer{i}/{name}": array for name, array in layer.items()}
    return made


def _layer_contents(weights: Weights, i: int) -> dict[str, np.ndarray]:
    c = weights.config
    q, k, v, output, gate, up, down = (
        _matrix(weights.layer(i, name), c.weights)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    )
    made = {name: weights.layer(i, name).floats() for name in ("attn_norm", "ffn_norm")}
    for name, arrays in (
        ("qkv", tuple(map(np.concatenate, zip(q, k, v, strict=True)))),
        ("output", output),
        ("gate_up", packing.interleaved(gate, up, c.mlp, turns(c))),
        ("down", down if c.large else packing.by_column_slices(down, c.mlp)),
    ):
        made |= _parts(name, arrays)
    return made


def _matrix(tensor: Tensor, kind: str) -> tuple[np.ndarray, ...]:
    """A matrix of a file in a format of the kernels: the blocks of the file as they are, or its numbers rounded."""
    if tensor.kind.name.lower() == kind:
        return packing.split_blocks(tensor.data, kind)
    return packing.packed(tensor.floats(), kind)


def _parts(name: str, arrays: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    return dict(zip((f"{name}_weights", f"{name}_scales"), arrays))


def arena(device: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, gd.DeviceArray]:
    """Copies of arrays in one block of device memory, which lives as long as any of them.

    Parameters
    ----------
    device : Driver
        ``graphdsl.cuda(0)`` or ``graphdsl.emulator()``.
    arrays : dict of str to numpy.ndarray

    Examples
    --------
    >>> parts = arena(gd.emulator(), {"x": np.arange(3, dtype="f4"), "y": np.ones((2, 2), "i2")})
    >>> parts["y"].address - parts["x"].address, parts["y"].copy_to_host().tolist()
    (256, [[1, 1], [1, 1]])
    """
    offsets = _offsets(array.nbytes for array in arrays.values())
    contents = np.zeros(offsets[-1], np.uint8)
    for array, offset in zip(arrays.values(), offsets):
        contents[offset : offset + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return _views(gd.to_device(device, contents), {name: (a.shape, a.dtype) for name, a in arrays.items()}, offsets)


def blank(device: Any, shapes: Mapping[str, Shape]) -> dict[str, gd.DeviceArray]:
    """As `arena`, of arrays that are still to be written."""
    offsets = _offsets(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes.values())
    return _views(gd.device_array(device, offsets[-1], np.uint8), shapes, offsets)


def batch_memory(device: Any, config: Config, sequences: int, context: int) -> dict[str, gd.DeviceArray]:
    """What the graphs of so many conversations share, still to be written but for their number, ``count``."""
    shapes = Operands.shapes(config, context, sequences)
    shapes |= {"count": ((1,), np.int32), "logits": ((sequences * config.vocabulary,), np.float32)}
    made = blank(device, shapes)
    made["rows_of_logits"] = made["logits"].view((sequences, config.vocabulary), np.float32)
    made["count"].copy_from_host(np.array([sequences], np.int32))
    return made


def _offsets(sizes: Iterable[int]) -> list[int]:
    """Where arrays of so many bytes begin, one behind the other; and where the last one ends."""
    return list(accumulate((-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes), initial=0))


def _views(block: gd.DeviceArray, shapes: Mapping[str, Shape], offsets: Iterable[int]) -> dict[str, gd.DeviceArray]:
    return {
        name: block.view(shape, dtype, offset=offset) for (name, (shape, dtype)), offset in zip(shapes.items(), offsets)
    }
