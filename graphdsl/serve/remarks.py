"""What the times of a bucket say about its graph: whether it has enough in it, and whether it still pays.

This module must not measure anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphdsl.plan.costs import Costs

MOST_OVERHEAD = 0.15
"""The share of a run that launching may take before it is remarked upon."""

_MANY = 32
_FAR_BEYOND = 2.0


def overhead(launch: float, gpu: float) -> float:
    """The share that launching has of a run by itself: processor time of the launch, and then the GPU's.

    Parameters
    ----------
    launch : float
        Seconds of the processor, the median.
    gpu : float
        Seconds of the GPU, the median; 0 if it was not measured.

    Examples
    --------
    >>> overhead(2e-6, 8e-6)
    0.2
    """
    return launch / (launch + gpu) if gpu else 0.0


def stream_time(nodes: int, gpu: float, padding: float, costs: Costs) -> float:
    """Seconds that a run would take without a graph: nodes launched one by one, and nothing padded.

    Launches go on while the GPU works, so that the longer of the two counts. What is padded of the sizes is taken to
    take as much of the GPU's time.
    """
    return max(nodes * costs.stream_launch * 1e-6, gpu * (1 - padding))


def remarks(nodes: int, launch: float, gpu: float, padding: float, costs: Costs | None = None) -> Iterator[str]:
    """What there is to say of a bucket, each with what to do.

    Parameters
    ----------
    nodes : int
        How many its graph has.
    launch, gpu : float
        As in `overhead`. Without ``gpu`` there is nothing to say.
    padding : float
        The share of its cells that requests left empty.
    costs : Costs, optional
        What launching one by one costs.

    Notes
    -----
    Launching is remarked upon where it takes more than 15 % of a run: then the graph has little work for one launch. If
    it takes far longer than that of a chain of kernels, the reason is in the shape or the kinds of the nodes: on an
    H200 a chain of memsets took the processor 0.9 µs a node.

    A graph no longer pays where the same nodes, launched one by one and not padded, would be done as soon. A Numba
    launch of `Costs.stream_launch` (32.5 µs, and 20 on a faster processor) hides behind a node that keeps the GPU busy
    for longer: only what the graph saves of the processor is left, against what padding costs of the GPU.

    Examples
    --------
    >>> for remark in remarks(nodes=3, launch=4e-6, gpu=12e-6, padding=0.0):
    ...     print(remark)
    launching takes 25% of a run: 3 nodes of 12.0 µs in all are little for one launch. Put more of the work into the \
graph: several steps, or what runs before and behind it.
    """
    if not gpu or not nodes:
        return
    costs = costs or Costs()
    count = f"{nodes:,} node{'' if nodes == 1 else 's'}"
    share = overhead(launch, gpu)
    if share > MOST_OVERHEAD:
        usual = costs.launch(nodes, 1, 1) * 1e-6
        takes = f"launching takes {share:.0%} of a run"
        if nodes >= _MANY and launch > _FAR_BEYOND * usual:
            yield (
                f"{takes}: {time_text(launch)}, where a chain of {nodes:,} kernels takes about {time_text(usual)}. "
                "Nodes that begin or end side by side cost that: instantiate with lanes='auto'. So do memsets, about "
                "0.9 µs each: let kernels write what they would."
            )
        else:
            yield (
                f"{takes}: {count} of {time_text(gpu)} in all are little for one launch. Put more of the work into the "
                "graph: several steps, or what runs before and behind it."
            )
    without, now = stream_time(nodes, gpu, padding, costs), max(launch, gpu)
    if without <= now:
        alone = nodes * costs.stream_launch * 1e-6
        sooner = now - without
        loses = (
            f"and be done {time_text(sooner)} sooner, without padding. Smaller buckets pad less"
            if sooner
            else "and be done as soon. Expect no more of it"
        )
        yield (
            f"the graph no longer pays: launched one by one, {count} would take {time_text(alone)} of the processor, "
            f"hide behind {time_text(gpu)} of the GPU, {loses}: the graph saves "
            f"{time_text(max(alone - launch, 0.0))} of the processor, and no time of a run."
        )


def time_text(seconds: float) -> str:
    """A time, rounded.

    Examples
    --------
    >>> time_text(0), time_text(2.5e-6), time_text(0.0321), time_text(1.5)
    ('0', '2.5 µs', '32.1 ms', '1.50 s')
    """
    if not seconds:
        return "0"
    for scale, unit in ((1e-6, "µs"), (1e-3, "ms")):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.{1 if seconds < 99.95 * scale else 0}f} {unit}"
    return f"{seconds:.2f} s"
