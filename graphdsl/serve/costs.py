"""What the execs of a bucket take besides their arena, in bytes, before they are there.

This module must not build anything.
"""

from __future__ import annotations

from graphdsl.plan import Plan

NODE_NBYTES = 10_240
"""Bytes that a node of an exec takes of the driver and of the package, its packed parameters among them.

An estimate for a kernel node, of which there is no record of a measurement. Other nodes count as much.
"""


def exec_nbytes(made: Plan) -> int:
    """Bytes of one exec of a plan: of its nodes, and of the host memory that it owns.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> from graphdsl.plan import plan
    >>> graph = Definition("small")
    >>> _ = graph.memset(graph.host_array("x", 1000, "u1"), 0)
    >>> exec_nbytes(plan(graph))
    11240
    """
    own = (each for each in made.buffers.values() if each.space != "device" and not each.external)
    return len(made.nodes) * NODE_NBYTES + sum(each.allocation_nbytes for each in own)
