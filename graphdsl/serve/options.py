"""Refuses what a cache cannot be made of, before anything is built.

This module must not know how a cache works.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from threading import TIMEOUT_MAX
from typing import Any

from graphdsl.declare.store import unknown_name
from graphdsl.errors import DeclarationError
from graphdsl.serve.buckets import Buckets
from graphdsl.serve.events import Observer
from graphdsl.serve.padding import Padding

_ALLOCATOR = "an object with allocate(nbytes, stream=), as memory resources of cuda.core have it"


def require_options(
    build: Any,
    buckets: Any,
    device: Any,
    inputs: Any,
    outputs: Any,
    sizes: Any,
    concurrency: Any,
    max_bytes: Any,
    fallback: Any,
    patience: Any,
    observer: Any,
    memory: Any,
) -> None:
    """Refuse what is of the wrong kind; all is as `GraphCache` takes it.

    Raises
    ------
    DeclarationError
        The message names the option.
    """
    _require(callable(build), "build", build, "a function of the sizes of a bucket that gives its graph")
    _require(isinstance(buckets, Buckets), "buckets", buckets, "what graphdsl.Buckets gives")
    _require(device is None or hasattr(device, "ordinal"), "device", device, "what graphdsl.emulator gives, or a GPU")
    for field, value in {"inputs": inputs, "outputs": outputs, "sizes": sizes}.items():
        _require(value is None or isinstance(value, Mapping), field, value, "a dict")
    for name, padding in (inputs or {}).items():
        _require(isinstance(padding, Padding), f"inputs[{name!r}]", padding, "a graphdsl.Padding")
    for axis in sizes or {}:
        if axis not in buckets.sizes:
            raise unknown_name(axis, buckets.sizes, "axis of the buckets", DeclarationError)
    _require(_is_count(concurrency), "concurrency", concurrency, "a positive integer")
    _require(max_bytes is None or _is_count(max_bytes), "max_bytes", max_bytes, "a positive integer, or None")
    _require(fallback is None or callable(fallback), "fallback", fallback, "a function of the sizes of a request")
    _require(patience is None or _is_time(patience), "patience", patience, "a number of seconds from 0 on, or None")
    known = observer in ("metrics", None) or isinstance(observer, Observer)
    _require(known, "observer", observer, "a graphdsl.Observer")
    _require(memory is None or callable(getattr(memory, "allocate", None)), "memory", memory, _ALLOCATOR)


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_time(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= TIMEOUT_MAX  # no NaN


def _require(right: bool, field: str, value: Any, rule: str) -> None:
    if not right:
        raise DeclarationError(
            f"this is {rule}", field=field, value=repr(value), remedy="See the docstring of graphdsl.GraphCache."
        )
