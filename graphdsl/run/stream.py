"""What a user may pass for a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdsl.drivers.base import Handle
from graphdsl.errors import GraphdslError


def stream_handle(stream: Any) -> Handle:
    """The driver's handle of a stream.

    Parameters
    ----------
    stream : int or object
        A handle, or an object with ``__cuda_stream__`` (cuda.core, PyTorch, CuPy), which gives a version and a handle.

    Raises
    ------
    GraphdslError
        If it is neither.
    """
    if isinstance(stream, (int, np.integer)) and not isinstance(stream, bool):
        return int(stream)
    try:
        described = stream.__cuda_stream__
        _, handle = described() if callable(described) else described
        return int(handle)
    except Exception as problem:  # whatever an object of another library raises
        cause = None if isinstance(problem, AttributeError) else problem
    raise GraphdslError(
        "a stream is an integer handle, or an object with __cuda_stream__",
        field="stream",
        value=f"{stream!r} of type {type(stream).__name__}",
        remedy="Pass a stream of cuda.core, PyTorch or CuPy, its handle, or None for the exec's own.",
    ) from cause
