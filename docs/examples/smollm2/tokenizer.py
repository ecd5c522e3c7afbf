"""Text to tokens and back: the byte-level BPE of the model, from the vocabulary and the merges in its GGUF file."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

import graphdsl as gd

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the template of the model puts first where a chat has no system message of its own."""

_CONTROL = 3  # a token type of GGUF
_START, _END = "<|im_start|>", "<|im_end|>"


class ChatTokenizer:
    """The tokenizer of a chat model that speaks ChatML.

    Parameters
    ----------
    metadata : dict
        Of the GGUF file: ``tokenizer.ggml.tokens``, ``.merges``, ``.token_type``, ``.pre`` and ``.eos_token_id``.

    Attributes
    ----------
    stops : frozenset of int
        Tokens that end an answer.

    Raises
    ------
    GraphdslError
        If the file has a tokenizer of another kind.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        keys = {name: metadata.get(f"tokenizer.ggml.{name}") for name in ("model", "pre", "tokens", "merges")}
        if (keys["model"], keys["pre"]) != ("gpt2", "smollm") or not keys["tokens"] or keys["merges"] is None:
            raise gd.GraphdslError(
                "the tokenizer is byte-level BPE (gpt2) with the pre-tokenizer of smollm",
                field="tokenizer",
                value=f"{keys['model']!r} with {keys['pre']!r}",
                remedy="Use a GGUF file of SmolLM2.",
            )
        self.tokens: list[str] = keys["tokens"]
        kinds = metadata.get("tokenizer.ggml.token_type") or [1] * len(self.tokens)
        self.control = {text: i for i, (text, kind) in enumerate(zip(self.tokens, kinds)) if kind == _CONTROL}
        self.stops = frozenset({metadata["tokenizer.ggml.eos_token_id"], *self._named("<|endoftext|>", _END)})
        merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in keys["merges"])]
        vocabulary = {text: i for i, text in enumerate(self.tokens)}
        self._bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        digits = pre_tokenizers.Digits(individual_digits=True)
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)  # the expression of GPT-2
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
        self._bpe.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in self.control])
        self._bpe.encode_special_tokens = True  # a user who types <|im_end|> ends nothing

    def _named(self, *texts: str) -> list[int]:
        return [self.control[text] for text in texts if text in self.control]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; what looks like a control token in it is text, too.

        Bytes that the vocabulary has no token for are left out, as the published tokenizer does. In that of SmolLM2
        they are those of six control characters, and those that no character has that Unicode has assigned.
        """
        return self._bpe.encode(text, add_special_tokens=False).ids

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the model is to answer.

        Parameters
        ----------
        messages : sequence of (role, text)
            Roles are ``"system"``, ``"user"`` and ``"assistant"``.
        """
        if not messages or messages[0][0] != "system":
            messages = [("system", SYSTEM), *messages]
        start, end = self.control[_START], self.control[_END]
        tokens: list[int] = []
        for role, text in messages:
            tokens += [start, *self.encode(f"{role}\n{text}"), end, *self.encode("\n")]
        return [*tokens, start, *self.encode("assistant\n")]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; control tokens have none."""
        stream = self.stream()
        return "".join(map(stream.add, tokens)) + stream.end()

    def stream(self) -> TextStream:
        """A decoder that is given one token after the other."""
        return TextStream(self)

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token stands for; none for a control token."""
        text = self.tokens[token]
        return b"" if text in self.control else bytes(BYTES[character] for character in text)


class TextStream:
    """Text of tokens as they come: a character appears once its last byte is there, and never a half of it."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> str:
        """What can be printed after one more token."""
        return self._decoder.decode(self._tokenizer.bytes_of(token))

    def end(self) -> str:
        """What is left when no token follows: a replacement character where one was begun and not ended."""
        return self._decoder.decode(b"", final=True)


def _byte_characters() -> dict[str, int]:
    """Bytes by their characters, as GPT-2 has them.

    Printable characters of Latin-1 stand for themselves; the others are, in their order, those from U+0100 on.
    """
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


BYTES = _byte_characters()
"""The byte that each character of a token stands for, in any byte-level vocabulary."""
