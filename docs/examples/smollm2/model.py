"""The graphs of a Llama-like model: one for a decode step, and one for each length that prompts are padded to.

What all graphs of a model share (weights, keys and values, position and token) lies in memory that they adopt, so that
nothing is copied from one to the other. A graph that is given no such memory declares arrays of its own by the same
names: it needs no device to be checked, drawn and traced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from graphdsl.kernels import argmax, attention, decode, embedding, head, matmul, matvec, sampling
from graphdsl.kernels.launch import Launch

import graphdsl as gd

from .memory import Memory, Operands, table_format, turns
from .weights import Config

BUCKETS = (16, 32, 64, 128, 256)
"""Tokens that a graph for prompts has room for; a longer prompt is processed in parts."""

CONTEXT = 2048
"""Tokens of a conversation for which there is room by default."""


def decode_graph(
    config: Config,
    context: int = CONTEXT,
    *,
    greedy: bool = True,
    overlapping: bool = True,
    memory: Memory | None = None,
) -> gd.Graph:
    """The graph of one decode step: it reads a token, writes the one that follows, and advances the position.

    ``position`` is the place of the token in the conversation. The token that follows appears in ``tokens``, pinned
    memory, one place further on, where the host reads it while further steps run.

    Parameters
    ----------
    config : Config
    context : int
        Tokens that a conversation has room for.
    greedy : bool
        Take the most probable token. If not, all ``logits`` are written, and the token is chosen by them and the params
        ``temperature``, ``top_k`` and ``seed``.
    overlapping : bool
        Let a kernel begin while the one in front of it ends, by programmatic edges.
    memory : mapping, optional
        The memory that the graphs of the model share.
    """
    c = config
    chain = Chain("decode" if greedy else "sample", overlapping)
    shared = Operands(chain.graph, c, context, memory)
    x = chain.graph.device_array("x", c.hidden, np.float32)
    chain.add(embedding.embedding(c.hidden, weights=table_format(c)), (shared.token, shared.table, x), "embed")
    layers = _streaming_layers if c.large else _fused_layers
    x = layers(chain, shared, x)
    if not greedy:
        _sample(chain, shared, x)
        return chain.graph
    tokens = chain.graph.host_array("tokens", context + 1, np.int32)
    best = shared.array("best", 1, np.int64)
    if c.large:
        choose = matvec.matvec_best(c.hidden, c.vocabulary, weights=c.weights, eps=c.epsilon)
    else:
        choose = head.greedy_head(c.hidden, c.vocabulary, eps=c.epsilon)
    chain.add(choose, (x, shared.norm, shared.head, best), "head")
    chain.add(Launch(sampling.take_best, 1, 32), (best, shared.token, shared.position, tokens), "take")
    return chain.graph


def _fused_layers(chain: Chain, shared: Operands, x: Any) -> Any:
    """The layers of a small model, each of three kernels that do as much as they can; gives where the result is."""
    c, g = shared.config, chain.graph
    y = g.device_array("y", c.hidden, np.float32)
    q = g.device_array("q", c.query_rows, np.float32)
    shape = (c.hidden, c.heads, c.kv_heads, c.head_size)
    project = decode.qkv_rotary_append(*shape, eps=c.epsilon, threads=_projection_threads(c))
    attend = decode.attention_output(*shape, parts=_attention_parts(c))
    mlp = decode.gated_mlp(c.hidden, c.mlp, eps=c.epsilon)
    for i in range(c.layers):
        with g.scope(f"layer{i}"):
            layer = shared.layer(i)
            cache = layer["keys"], layer["values"]
            placed = shared.rotary, shared.position
            chain.add(project, (x, layer["attn_norm"], layer["qkv"], *placed, q, *cache, y), "qkv")
            chain.add(attend, (q, *cache, shared.position, layer["output"], x), "attention")
            chain.add(mlp, (x, layer["ffn_norm"], layer["gate_up"], layer["down"], y), "mlp")
        x, y = y, x  # what the MLP adds to must not be what it reads
    return x


def _streaming_layers(chain: Chain, shared: Operands, x: Any) -> Any:
    """The layers of a large model, a kernel for each matrix, and one for attention; gives where the result is."""
    c, g = shared.config, chain.graph
    q, mixed = (g.device_array(name, c.query_rows, np.float32) for name in ("q", "mixed"))
    units = g.device_array("units", c.mlp, np.float32)
    kind: dict[str, Any] = {"weights": c.weights}
    normed = kind | {"eps": c.epsilon}
    project = matvec.matvec_qkv_rotary_append(c.hidden, c.heads, c.kv_heads, c.head_size, **normed)
    attend = attention.decode_attention(c.heads, c.kv_heads, c.head_size)
    output = matvec.matvec(c.query_rows, c.hidden, add=True, **kind)
    gate_up = matvec.matvec_gate_up(c.hidden, c.mlp, **normed)
    down = matvec.matvec(c.mlp, c.hidden, add=True, **kind)
    for i in range(c.layers):
        with g.scope(f"layer{i}"):
            layer = shared.layer(i)
            cache = layer["keys"], layer["values"]
            placed = shared.rotary, shared.position
            chain.add(project, (x, layer["attn_norm"], layer["qkv"], *placed, q, *cache), "qkv")
            chain.add(attend, (q, *cache, shared.position, mixed), "attention")
            chain.add(output, (mixed, layer["attn_norm"], layer["output"], x), "output")
            chain.add(gate_up, (x, layer["ffn_norm"], layer["gate_up"], units), "gate_up")
            chain.add(down, (units, layer["ffn_norm"], layer["down"], x), "down")
    return x


def batch_graph(
    config: Config, sequences: int, context: int = CONTEXT, *, overlapping: bool = True, memory: Memory
) -> gd.Graph:
    """The graph of one decode step of several conversations, each at a position of its own.

    Weights are read once for all of them, by products on tensor cores. The most probable token of each follows.

    Parameters
    ----------
    config : Config
        Of a large model.
    sequences : int
        How many conversations; a multiple of 8.
    context : int
        Tokens that each has room for.
    overlapping : bool
        As `decode_graph` takes it.
    memory : mapping
        As `batch_memory` makes it.
    """
    c, n = config, sequences
    chain = Chain(f"batch{n}", overlapping)
    g, shared = chain.graph, Operands(chain.graph, c, context, memory, sequences)
    x = g.device_array("x", n * c.hidden, np.float32)
    q, mixed = (g.device_array(name, n * c.query_rows, np.float32) for name in ("q", "mixed"))
    units = g.device_array("units", n * c.mlp, np.float32)
    chosen = g.device_array("chosen", n, np.int32)
    tokens = g.host_array("tokens", (n, context + 1), np.int32)
    count, logits, rows = (g.external(name, memory[name]) for name in ("count", "logits", "rows_of_logits"))
    kind: dict[str, Any] = {"weights": c.weights}
    normed = kind | {"eps": c.epsilon}
    project = matmul.matmul_qkv_rotary_append(
        n, c.hidden, c.heads, c.kv_heads, c.head_size, positions=context, **normed
    )
    attend = attention.decode_attention(c.heads, c.kv_heads, c.head_size, count=n, positions=context)
    output = matmul.matmul(n, c.query_rows, c.hidden, add=True, **kind)
    gate_up = matmul.matmul_gate_up(n, c.hidden, c.mlp, width=turns(c), **normed)
    down = matmul.matmul(n, c.mlp, c.hidden, add=True, **kind)
    chain.add(embedding.embedding(c.hidden, n, weights=table_format(c)), (shared.token, shared.table, x), "embed")
    for i in range(c.layers):
        with g.scope(f"layer{i}"):
            layer = shared.layer(i)
            cache = layer["keys"], layer["values"]
            placed = shared.rotary, shared.position, count
            chain.add(project, (x, layer["attn_norm"], layer["qkv"], *placed, q, *cache), "qkv")
            chain.add(attend, (q, *cache, shared.position, mixed), "attention")
            chain.add(output, (mixed, layer["attn_norm"], layer["output"], x), "output")
            chain.add(gate_up, (x, layer["ffn_norm"], layer["gate_up"], units), "gate_up")
            chain.add(down, (units, layer["ffn_norm"], layer["down"], x), "down")
    chain.add(matmul.matmul(n, c.hidden, c.vocabulary, **normed), (x, shared.norm, shared.head, logits), "head")
    chain.add(
        Launch(argmax, n, 512), (rows, chosen), "argmax", after=chain.last
    )  # for any rows, so it overlaps nothing
    take = Launch(sampling.take_all, 1, 32)
    chain.add(take, (chosen, shared.token, shared.position, tokens), "take", after=chain.last)
    return g


def prompt_graph(config: Config, rows: int, context: int = CONTEXT, *, memory: Memory | None = None) -> gd.Graph:
    """The graph that processes up to ``rows`` tokens at once, and chooses the token that follows them.

    The first ``count`` of ``prompt``, pinned memory, are tokens of the conversation, from place ``start`` on. The rest
    is padding, which changes nothing: no row looks at a later one, and rows of padding leave no keys and values.

    Parameters
    ----------
    config : Config
        Of a model that is not large.
    rows : int
        Tokens that there is room for, such as one of `BUCKETS`.
    context : int
        Tokens that a conversation has room for.
    memory : mapping, optional
        The memory that the graphs of the model share.
    """
    c = config
    chain = Chain(f"prompt{rows}")
    g, shared = chain.graph, Operands(chain.graph, c, context, memory)
    start, count = g.param("start", np.int32, default=0), g.param("count", np.int32, default=rows)
    given = g.host_array("prompt", rows, np.int32)
    tokens = g.device_array("prompt_tokens", rows, np.int32)
    length = g.device_array("length", 1, np.int32)
    x = g.device_array("x", rows * c.hidden, np.float32)
    q, mixed = (g.device_array(name, rows * c.query_rows, np.float32) for name in ("q", "mixed"))
    units = g.device_array("units", rows * c.mlp, np.float32)
    project = matmul.matmul_qkv_rotary_append(rows, c.hidden, c.heads, c.kv_heads, c.head_size, eps=c.epsilon)
    attend = attention.causal_attention(rows, c.heads, c.kv_heads, c.head_size)
    output = matmul.matmul(rows, c.query_rows, c.hidden, add=True)
    gate_up = matmul.matmul_gate_up(rows, c.hidden, c.mlp, eps=c.epsilon, width=turns(c))
    down = matmul.matmul(rows, c.mlp, c.hidden, weights="q4_1 slices", add=True)
    before = [
        g.memcpy(tokens, given, name="load"),
        g.memset(shared.position, start, name="start"),
        g.memset(length, count, name="count"),
    ]
    chain.add(embedding.embedding(c.hidden, rows), (tokens, shared.table, x), "embed", after=before)
    for i in range(c.layers):
        with g.scope(f"layer{i}"):
            layer = shared.layer(i)
            cache = layer["keys"], layer["values"]
            where = shared.position, length
            chain.add(project, (x, layer["attn_norm"], layer["qkv"], shared.rotary, *where, q, *cache), "qkv")
            chain.add(attend, (q, *cache, *where, mixed), "attention")
            chain.add(output, (mixed, layer["attn_norm"], layer["output"], x), "output")
            chain.add(gate_up, (x, layer["ffn_norm"], layer["gate_up"], units), "gate_up")
            chain.add(down, (units, layer["ffn_norm"], layer["down"], x), "down")
    # Behind the last token stands the next one: the choice goes on from there, as behind a decode step.
    last = g.memset(shared.position, start + count - 1, name="last", after=chain.last)
    _sample(chain, shared, x[(count - 1) * c.hidden : count * c.hidden], after=last)
    return g


def _sample(chain: Chain, shared: Operands, x: Any, *, after: Any = None) -> None:
    """The head, and the choice among all tokens."""
    g, c = chain.graph, shared.config
    temperature = g.param("temperature", np.float32, default=0.0)
    top_k = g.param("top_k", np.int32, default=40)
    seed = g.param("seed", np.uint64, default=0)
    logits = g.device_array("logits", c.vocabulary, np.float32, lifetime="persistent")  # others read them
    tokens = g.host_array("tokens", shared.context + 1, np.int32)
    if c.large:
        make = matvec.matvec(c.hidden, c.vocabulary, weights=c.weights, eps=c.epsilon)
    else:
        make = head.logits_head(c.hidden, c.vocabulary, eps=c.epsilon)
    chain.add(make, (x, shared.norm, shared.head, logits), "head", after=after)
    choose = sampling.sample_top_k(c.vocabulary, threads=min(1024, 32 * -(-c.vocabulary // 32)))
    chain.add(choose, (logits, shared.token, shared.position, tokens, temperature, top_k, seed), "choose")


def _projection_threads(config: Config) -> int:
    """The largest blocks whose warps share out the rows of queries, keys and values."""
    rows = config.query_rows + 2 * config.kv_rows
    return next(threads for threads in (256, 128, 64) if rows % (threads // 32) == 0)


def _attention_parts(config: Config) -> int:
    """Blocks that share the rows of a head: two, or as many as it takes for blocks that there can be."""
    lanes, least = config.head_size // 32, config.head_size
    return next(parts for parts in (2, 1, *range(3, 65)) if least <= config.hidden // parts * lanes <= 1024)


class Chain:
    """A graph of kernels that follow each other.

    Parameters
    ----------
    name : str
    overlapping : bool
        Let each begin while the one in front of it ends. They are made for that: they load their weights, and only
        then wait for it.
    """

    def __init__(self, name: str, overlapping: bool = True) -> None:
        self.graph = gd.Graph(name)
        self.overlapping = overlapping
        self.last: Any = None

    def add(self, launch: Launch, args: tuple[Any, ...], name: str, *, after: Any = None) -> None:
        """A kernel behind the last one; or behind other nodes, when they have ended."""
        node = self.graph.kernel(launch.kernel, grid=launch.grid, block=launch.block, args=args, name=name)
        if after is not None:
            after >> node
        elif self.last is not None:
            self.graph.edge(self.last, node, programmatic=self.overlapping)
        self.last = node
