"""Something for the arrays of a graph to hold, where nobody says what. This module must not run anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdsl.compile.accesses import accesses
from graphdsl.declare.definition import Definition
from graphdsl.declare.operands import Buffer
from graphdsl.testing.orders import preorder

_INTEGERS = 10
"""Below this: where they are indices, they are of use to small arrays too."""


def random_inputs(graph: Definition, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Contents drawn by lot for the arrays that a graph reads before it writes them.

    Parameters
    ----------
    graph : Graph
        The graph.
    seed : int
        Of what is drawn.

    Returns
    -------
    dict of str to numpy.ndarray
        For each host array, and for each device array whose first node may read it, in the order of the declaration:
        floating-point numbers from -1 to 1, integers from 0 to 9, and zeros where the dtype has fields. External memory
        has contents already.

    Examples
    --------
    >>> import numpy as np
    >>> graph = Definition()
    >>> raw = graph.host_array("raw", 4, np.int32)
    >>> x, y = (graph.device_array(name, 4, np.int32) for name in "xy")
    >>> _ = graph.memcpy(x, raw), graph.memcpy(raw, y)
    >>> list(random_inputs(graph))
    ['raw', 'y']
    """
    rng = np.random.default_rng(seed)
    read_first: dict[str, bool] = {}
    for node in preorder(graph):
        for access in accesses(node):
            read_first.setdefault(access.array.buffer.name, access.reads)
    wanted = [
        buffer
        for buffer in graph.operands.values()
        if isinstance(buffer, Buffer)
        and not (buffer.external or buffer.allocated)
        and (buffer.space != "device" or read_first.get(buffer.name, False))
    ]
    return {buffer.name: _drawn(rng, buffer) for buffer in wanted}


def _drawn(rng: np.random.Generator, buffer: Buffer) -> np.ndarray[Any, Any]:
    shape, dtype, kind = buffer.shape, buffer.dtype, buffer.dtype.kind
    if kind in "fc":
        drawn = rng.uniform(-1, 1, shape) + (1j * rng.uniform(-1, 1, shape) if kind == "c" else 0)
        return np.asarray(drawn).astype(dtype)
    if kind in "biu":
        return np.asarray(rng.integers(0, 2 if kind == "b" else _INTEGERS, shape)).astype(dtype)
    return np.zeros(shape, dtype)
