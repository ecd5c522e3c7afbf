"""The model in NumPy, in float32, over the dequantised weights: what the graphs are held to.

It is written from the papers (Touvron et al., "LLaMA", 2023; Su et al., "RoFormer", 2021) and shares no code with the
kernels. Rows of queries and keys lie in a GGUF file so that the rotary embedding turns neighbours: rows 2i and 2i + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MATRICES = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)


class Chat:
    """Keys and values of one sequence of tokens, one array a layer."""

    def __init__(self, config) -> None:
        empty = np.zeros((0, config.kv_heads, config.head_size), np.float32)
        self.keys = [empty] * config.layers
        self.values = [empty] * config.layers

    @property
    def length(self) -> int:
        return len(self.keys[0])


class Reference:
    """A model whose weights are float32, all of them in memory (0.5 GB for SmolLM2-135M)."""

    def __init__(self, weights) -> None:
        self.config = c = weights.config
        self.embedding = weights["token_embd"].floats()
        self.head = weights["output"].floats() if weights.config.large else self.embedding
        self.final_norm = weights["output_norm"].floats()
        self.layers = [{name: weights.layer(i, name).floats() for name in MATRICES} for i in range(c.layers)]
        self.frequencies = c.rope_base ** (-np.arange(0, c.head_size, 2, dtype=np.float64) / c.head_size)

    def logits(self, chats: Sequence[Chat], tokens: Sequence[Sequence[int]]) -> np.ndarray:
        """Continue each chat by its tokens; the logits behind the last of each, float32 of (chats, vocabulary)."""
        counts = [len(each) for each in tokens]
        ends = np.cumsum(counts)
        positions = np.concatenate([chat.length + np.arange(count) for chat, count in zip(chats, counts)])
        x = self.embedding[np.concatenate([np.asarray(each, int) for each in tokens])]
        for i, layer in enumerate(self.layers):
            x = x + self._attention(i, layer, self._norm(x, layer["attn_norm"]), positions, chats, ends)
            h = self._norm(x, layer["ffn_norm"])
            gate = h @ layer["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ layer["ffn_up"].T)) @ layer["ffn_down"].T
        return self._norm(x[ends - 1], self.final_norm) @ self.head.T

    def _norm(self, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.config.epsilon)) * gain

    def _rotated(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Each pair of neighbours turned by its angle, in ``x`` of (tokens, heads, head_size)."""
        angles = positions[:, None, None] * self.frequencies
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1).reshape(x.shape)

    def _attention(self, i, layer, h, positions, chats, ends) -> np.ndarray:
        c = self.config
        q = self._rotated((h @ layer["attn_q"].T).reshape(-1, c.heads, c.head_size), positions)
        k = self._rotated((h @ layer["attn_k"].T).reshape(-1, c.kv_heads, c.head_size), positions)
        v = (h @ layer["attn_v"].T).reshape(-1, c.kv_heads, c.head_size)
        mixed = []
        for chat, end, start in zip(chats, ends, [0, *ends[:-1]]):
            rows = slice(start, end)
            chat.keys[i] = np.concatenate([chat.keys[i], k[rows]])
            chat.values[i] = np.concatenate([chat.values[i], v[rows]])
            keys, values = (np.repeat(each[i], c.heads // c.kv_heads, axis=1) for each in (chat.keys, chat.values))
            scores = np.einsum("qhd,khd->hqk", q[rows], keys) / np.float32(np.sqrt(c.head_size))
            later = np.arange(len(keys)) > positions[rows, None]
            scores = np.where(later, -np.inf, scores)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            mixed.append(np.einsum("hqk,khd->qhd", weights, values))
        return np.concatenate(mixed).reshape(len(h), -1) @ layer["attn_output"].T


@dataclass(frozen=True)
class Greedy:
    """What the reference answers to a prompt.

    Attributes
    ----------
    tokens : list of int
        The tokens, the most probable at each step.
    logits : numpy.ndarray
        Float32 of (steps, vocabulary).
    """

    tokens: list[int]
    logits: np.ndarray

    def margin(self, step: int, other: int) -> float:
        """How much larger the logit of the token of a step is than that of another one."""
        return float(self.logits[step][self.tokens[step]] - self.logits[step][other])


def greedy(reference: Reference, prompts: Sequence[Sequence[int]], steps: int) -> list[Greedy]:
    """The most probable continuation of each prompt; all prompts at once, which the matrix products like."""
    chats = [Chat(reference.config) for _ in prompts]
    following: Sequence[Sequence[int]] = prompts
    all_logits = []
    for _ in range(steps):
        logits = reference.logits(chats, following)
        all_logits.append(logits)
        following = logits.argmax(axis=-1)[:, None].tolist()
    stacked = np.stack(all_logits, axis=1)
    return [Greedy(each.argmax(axis=-1).tolist(), each) for each in stacked]
