"""What the execs of a bucket take besides their arena, in bytes, before they are there.

This module must not build anything.
"""

from __future__ import annotations

from graphdsl.plan import Plan

NODE_NBYTES = {"kernel": 13_300, "memcpy": 14_100, "memset": 8_600, "empty": 5_500}
"""Bytes that a node of an exec takes, by its kind: the driver's, on the device and in the process, and the package's.

As `graphdsl.bench.exec_bytes` measured it on an H200 with driver 580.159 (docs/gpu/exec-bytes.json), rounded up. Of a
kernel node 4.0 KB are memory of the device.
"""

_OTHERS = max(NODE_NBYTES.values())  # kinds that were not measured


def exec_nbytes(made: Plan) -> int:
    """Bytes of one exec of a plan: of its nodes, and of the host memory that it owns.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> from graphdsl.plan import plan
    >>> graph = Definition("small")
    >>> _ = graph.memset(graph.host_array("x", 1000, "u1"), 0)
    >>> exec_nbytes(plan(graph))
    9600
    """
    own = (each for each in made.buffers.values() if each.space != "device" and not each.external)
    nodes = sum(NODE_NBYTES.get(node.kind, _OTHERS) for node in made.nodes)
    return nodes + sum(each.allocation_nbytes for each in own)
