"""What launches and nodes cost, as far as plans and estimates must know it: the one place for such numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """What launching costs, in microseconds.

    The defaults were measured on an NVIDIA H200 with driver 580: the medians of one run of a C program and of Numba's
    stream launches, on chains of 100 and of 1,000 kernels. ``graphdsl bench --peers`` measures them on other machines.

    Attributes
    ----------
    stream_launch : float
        Processor time to launch one node into a stream. Numba took 3,250 µs for 100 kernels; from C it is about 2.
    graph_launch, graph_launch_node : float
        Processor time of `cuGraphLaunch`: that of an empty graph, and what each node adds. It took 2.2 µs for 100
        nodes and 4.4 µs for 1,000.
    first, last : float
        Processor time that each node with none before it adds to a graph launch, and each with none behind it: 512
        kernels side by side took 409 to 595 µs, behind one other kernel 135, and before one behind that too 9 to 21.
        Forks and joins in the middle cost next to nothing.
    fork : float
        What each branch costs that forks from a kernel which all others wait for.
    body_branch : float
        GPU time that each node with none before it costs in the body of a conditional node.
    nothing : float
        GPU time of a kernel that does nothing, in a chain.
    latency : float
        From the end of the processor's work to the beginning of the GPU's, and back.
    node_gap : float
        GPU time that a node takes beyond its own duration: a chain of empty kernels took 0.5 µs a node.
    dispatch : float
        GPU time between the beginnings of two nodes at least, however many may run side by side: 512 took 97 µs.
    kernel : float
        GPU time of a kernel that does little, for each wave of blocks.
    instruction : float
        GPU time that an instruction of a kernel without loops takes at most.
    copy : float
        GPU time of a copy or memset of few bytes.
    device_bytes, link_bytes : float
        Bytes that are moved in a microsecond, in the memory of a device, and between it and others or the host.
    build_node : float
        Processor time to declare, check and emit a node (at most 20) and to instantiate it (3 to 5).
    """

    stream_launch: float = 32.5
    graph_launch: float = 2.0
    graph_launch_node: float = 0.0024
    first: float = 0.82
    last: float = 0.26
    fork: float = 0.035
    body_branch: float = 0.2
    nothing: float = 1.0
    latency: float = 7.0
    node_gap: float = 0.5
    dispatch: float = 0.19
    kernel: float = 2.0
    instruction: float = 0.1
    copy: float = 2.0
    device_bytes: float = 1.5e6
    link_bytes: float = 25e3
    build_node: float = 24.0

    def launch(self, nodes: int, firsts: int, lasts: int) -> float:
        """Processor time of a graph launch, by how many nodes there are, and with none before and none behind them."""
        branches = self.first * max(firsts - 1, 0) + self.last * max(lasts - 1, 0)
        return self.graph_launch + self.graph_launch_node * nodes + branches
