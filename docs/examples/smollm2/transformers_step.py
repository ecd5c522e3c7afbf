"""The same shapes in transformers, each step of a batch a PyTorch CUDA graph: what the engine is measured beside.

The model has random weights in bfloat16 and a static cache that is as long as it must be; nothing is paged, nobody
joins or leaves, and the most probable token is chosen on the device. The host reads each token a few steps later, as
that of the engine does.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

from .engine import AHEAD
from .weights import Config

_WARM = 3  # steps before the capture: code is loaded and workspaces are allocated


def is_there() -> bool:
    """True where PyTorch and transformers are installed."""
    return all(importlib.util.find_spec(package) for package in ("torch", "transformers"))


def model_of(config: Config) -> Any:
    """A model of the shapes of a configuration, on the GPU, with random weights in bfloat16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shapes = LlamaConfig(
        vocab_size=config.vocabulary,
        hidden_size=config.hidden,
        intermediate_size=config.mlp,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_size,
        rms_norm_eps=config.epsilon,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(shapes).to("cuda", torch.bfloat16).eval()


class Steps:
    """A batch behind its prompts: each step chooses a token of each sequence, and is one launch of a graph.

    Parameters
    ----------
    model : LlamaForCausalLM
    prompts : array of int, (sequences, tokens)
    answer : int
        Tokens of an answer, at most.

    Attributes
    ----------
    tokens : Tensor
        int64 (sequences, 1), on the GPU: those that were chosen last.
    """

    def __init__(self, model: Any, prompts: Any, answer: int) -> None:
        import torch
        from transformers import StaticCache

        self._model = model
        given = torch.as_tensor(prompts, dtype=torch.int64, device="cuda")
        self.cache = StaticCache(config=model.config, max_cache_len=given.shape[1] + answer + 2 * _WARM)
        self.tokens = torch.zeros((len(given), 1), dtype=torch.int64, device="cuda")
        self._graph = torch.cuda.CUDAGraph()
        self.go_on(given)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM):
                self.go_on(self.tokens)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self._graph):
            self.go_on(self.tokens)

    def go_on(self, given: Any) -> None:
        """Choose what follows, without a graph."""
        import torch

        with torch.no_grad():
            found = self._model(input_ids=given, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
            self.tokens.copy_(found.logits[:, -1:].argmax(-1))

    def launch(self) -> None:
        """The same as a launch of the graph."""
        self._graph.replay()


def read_behind(launch: Callable[[], None], tokens: Any, count: int) -> list[float]:
    """Launch so many steps and read the tokens of each, while others run; gives when they came, in seconds."""
    import torch

    slots = AHEAD + 1
    ring = torch.empty((slots, *tokens.shape), dtype=tokens.dtype, pin_memory=True)
    events = [torch.cuda.Event() for _ in range(slots)]
    times = []
    for step in range(count + AHEAD):
        if step < count:
            launch()
            ring[step % slots].copy_(tokens, non_blocking=True)
            events[step % slots].record()
        if step >= AHEAD:
            events[(step - AHEAD) % slots].synchronize()
            ring[(step - AHEAD) % slots].tolist()
            times.append(time.perf_counter())
    return times
