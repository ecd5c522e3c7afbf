"""The face: a `Definition` that can be checked, drawn, planned and instantiated.

One thin method for each thing; the stages do the work. Stages never import this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from graphdsl.check import Report, check, infer_edges
from graphdsl.declare.definition import Definition
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.targets import targets_of
from graphdsl.draw.dot import render, to_dot, write
from graphdsl.draw.memory import write as write_memory
from graphdsl.plan import Lanes, Plan, plan
from graphdsl.plan.costs import Costs
from graphdsl.plan.worth import Worth, worth_it

if TYPE_CHECKING:
    from graphdsl.declare.limits import Target
    from graphdsl.declare.node import Node
    from graphdsl.declare.targets import Targets
    from graphdsl.drivers.base import Driver
    from graphdsl.drivers.cuda import CudaDevice
    from graphdsl.drivers.emulator import Emulator
    from graphdsl.run.calls import Call
    from graphdsl.run.graph_exec import GraphExec

_logger = logging.getLogger("graphdsl")


class Graph(Definition):
    """A CUDA graph, declared in Python. Making one needs neither a GPU nor a driver.

    Parameters
    ----------
    name : str
        What drawings and messages call it.

    Examples
    --------
    >>> import numpy as np
    >>> import graphdsl as gd
    >>> g = gd.Graph("demo")
    >>> raw = g.host_array("raw", 1024, np.float32)
    >>> x = g.device_array("x", 1024, np.float32)
    >>> load = g.memcpy(x, raw, name="load")
    >>> clear = g.memset(x, 0, name="clear")
    >>> _ = load >> clear
    >>> g.check().ok
    True
    """

    def check(
        self,
        target: Target | list[Target] | Targets | Driver | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        compile: bool = True,
        disabled: Iterable[str] = (),
    ) -> Report:
        """Find what is wrong before any driver call; see `graphdsl.check.check`.

        Parameters
        ----------
        target : str, tuple, Limits, list of these, or device, optional
            Whose limits hold: a compute capability such as ``"sm_80"``, or a device; ``sm_90`` by default. A list has
            one for each device of the computer.
        values : dict, optional
            Values of params by name, instead of their defaults.
        compile : bool
            Compile the kernels too, which finds what only a compiler can.
        disabled : iterable of str, optional
            Names or patterns of nodes that an exec disables: who reads what they would have written is found.
        """
        return check(self, target=self._held_to(target), values=values, compile=compile, disabled=disabled)

    def compile(
        self,
        target: Target | list[Target] | Targets | Driver | None = None,
        *,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        """Compile the kernels, which `check` and `instantiate` else do when they need them, with nothing to be seen.

        Parameters
        ----------
        target : str, tuple, Limits, list of these, or device, optional
            As `check` takes it.
        progress : callable, optional
            Called before each kernel with how many are done, how many there are, and its name, and at the end with an
            empty name. A kernel that is launched many times with arguments of the same types is compiled once.

        Raises
        ------
        CompileError
            About the first kernel that does not compile.

        Examples
        --------
        >>> from graphdsl import kernels
        >>> g = Graph("small")
        >>> x = g.device_array("x", 64, "f4")
        >>> for i in range(10):
        ...     _ = g.kernel(kernels.square, grid=1, block=64, args=(x, x))
        >>> g.compile(progress=lambda done, total, name: print(f"{done} of {total}"))
        0 of 1
        1 of 1
        """
        from graphdsl.compile.kernels import compile_all

        found = targets_of(self._held_to(target), self.devices)
        nodes = [node for node in self.all_nodes if isinstance(node, KernelNode)]
        given = {} if progress is None else {"progress": progress}
        compile_all(nodes, lambda node: found.limits_of(node.device).compute_capability, **given)

    def _held_to(self, target: Any) -> Any:
        """What stands for a target: of a device what it says that it can do."""
        if not hasattr(target, "sibling"):
            return target
        from graphdsl.run.devices import targets

        return targets(target, self.devices)

    def infer_edges(self, *, values: Mapping[str, Any] | None = None) -> list[tuple[Node, Node]]:
        """Declare the edges that are missing, and no more: between nodes that touch the same memory, one to write it.

        Which of two nodes comes first is said by the order of the program: that of declaration, as far as edges let
        it. Between nodes of different bodies the edge joins the nodes that hold them. What is declared stays; the edges
        that are added are those that no other way implies. What a kernel or a function does that cannot be known counts
        as reading and writing; `independent` and atomic operations of one kind need no edge.

        Parameters
        ----------
        values : dict, optional
            Values of params by name, instead of their defaults; they decide which bytes views have.

        Returns
        -------
        list of pairs of Node
            Source and target of each edge that was added.

        Raises
        ------
        DeclarationError
            If the graph has a cycle.

        Examples
        --------
        >>> import graphdsl as gd
        >>> g = gd.Graph("demo")
        >>> raw, x, y = g.host_array("raw", 4, "f4"), g.device_array("x", 4, "f4"), g.device_array("y", 4, "f4")
        >>> load = g.memcpy(x, raw, name="load")
        >>> clear = g.memset(y, 0, name="clear")
        >>> copy = g.memcpy(y[:2], x[:2], name="copy")
        >>> [f"{source.name} >> {target.name}" for source, target in g.infer_edges()]
        ['clear >> copy', 'load >> copy']
        >>> g.infer_edges()
        []
        """
        return infer_edges(self, values)

    def plan(
        self,
        target: Target | list[Target] | Targets | Driver | None = None,
        *,
        lanes: Lanes = "auto",
        durations: Mapping[str, float] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Plan:
        """What `instantiate` would build of a graph that passes its checks: its order, its lanes, its memory.

        Parameters
        ----------
        target : str, tuple, Limits, list of these, or device, optional
            What it is planned for, as `check` takes it.
        lanes, durations, values
            As `instantiate` takes them. ``plan.lanes``, printed, says what was done and why.

        Raises
        ------
        CheckError
            If the definition has errors.

        Examples
        --------
        >>> g = Graph("wide")
        >>> x = g.device_array("x", (4, 8), "f4")
        >>> for row in range(4):
        ...     _ = g.memset(x[row], 0, name=f"clear{row}")
        >>> g.plan(lanes=2).lanes.edges
        (('clear0', 'clear2'), ('clear1', 'clear3'))
        >>> print(g.plan().memory[None])
        256 bytes: planned 0 of 0, and 256 of arrays by themselves
                     0          256  alone    x: nothing reads what node 'clear3' writes
        """
        self.check(target, values=values, compile=False).raise_for_errors()
        return plan(self, lanes=lanes, durations=durations, values=values, target=self._held_to(target))

    def worth_it(
        self, durations: Mapping[str, float] | None = None, *, default: float = 2.0, costs: Costs | None = None
    ) -> Worth:
        """What the graph saves over stream launches, and whether it does; see `graphdsl.plan.worth.worth_it`."""
        self.check(compile=False).raise_for_errors()
        return worth_it(self, durations, default=default, costs=costs)

    def to_dot(self, *, operands: bool = False, access: bool = False, lanes: Lanes = None, columns: int = 1) -> str:
        """The DAG in Graphviz' language, with names; what the checks find wrong is red.

        Parameters
        ----------
        operands : bool
            Draw buffers too, with dashed lines to the nodes that use them.
        access : bool
            Name at each edge the buffers that its source writes and its target reads, and in parentheses those that it
            only keeps from being written too early.
        lanes : int, "auto" or None
            Draw the edges that `instantiate` would add for so many lanes too, dashed; a graph with errors gets none.
        columns : int
            Columns, side by side, into which a long graph is broken.
        """
        report = self.check(compile=False)
        planned = plan(self, lanes=lanes).lanes.edges if lanes is not None and report.ok else ()
        return to_dot(self, findings=report, operands=operands, access=access, planned=planned, columns=columns)

    def draw(
        self,
        path: str | Path,
        *,
        operands: bool = False,
        access: bool = False,
        lanes: Lanes = None,
        columns: int = 1,
    ) -> Path:
        """Draw the DAG to a file; its suffix says how: ``.svg``, ``.png``, ``.pdf`` or ``.dot``.

        Parameters
        ----------
        path : str or Path
            File to write.
        operands, access, lanes, columns
            What else to draw, and how, as in `to_dot`.

        Returns
        -------
        Path
            The file.
        """
        return write(self.to_dot(operands=operands, access=access, lanes=lanes, columns=columns), path)

    def draw_memory(self, path: str | Path) -> Path:
        """Draw where device arrays lie, over the steps of the canonical order, to a file ``.svg``; gives the file.

        Each planned array is a box from its first use to its last; no two boxes overlap, in this order or any other.
        """
        return write_memory(self.plan(), path)

    def _repr_svg_(self) -> str:
        """The drawing, for notebooks."""
        return render(self.to_dot(), "svg").decode()

    def instantiate(
        self,
        device: Driver | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        lanes: Lanes = "auto",
        durations: Mapping[str, float] | None = None,
        share_memory: bool = True,
        arena: Any = None,
        stream: Any = None,
        owners: Mapping[str, Any] = MappingProxyType({}),
    ) -> GraphExec:
        """Build the graph on a device; see `graphdsl.run.graph_exec.instantiate`.

        Parameters
        ----------
        device : Driver, optional
            ``graphdsl.cuda(0)`` or ``graphdsl.emulator()``. By default the first GPU, or the emulator where there is
            none; the logger ``graphdsl`` says which. What `Graph.on` put on a device with a number is on that one of
            the same computer.
        values : dict, optional
            Values of params by name, instead of their defaults.
        lanes : int, "auto" or None
            How many nodes may run side by side: at most so many; as many as make a launch fastest, where that is clear;
            or all that nothing orders. What nodes the others wait for is the plan's to choose; see ``plan.lanes``.
        durations : dict of str to float, optional
            GPU time of nodes in microseconds, by name, for the plan of the lanes: from a profiler, or of
            `GraphExec.debug`. Without, it is estimated, and nodes that may take any time are left as they are.
        share_memory : bool
            Let device arrays that lie between nodes share bytes, as `plan` says. Without, each has bytes of its own and
            can be read after a launch: for looking at what a graph does in between.
        arena : object, optional
            Device memory for the arrays that the exec would allocate, of ``graph.plan().nbytes_on(device.ordinal)``
            bytes at least, from a multiple of 256 on. Execs may share it: one runs after the other, and what one of
            them left there is gone once another one runs.
        stream, owners : optional
            What launches go into, instead of a stream of its own; owners of external operands that replace those here.

        Returns
        -------
        GraphExec
            A snapshot: later changes of the graph do not change it.

        Raises
        ------
        CheckError
            If the definition has errors; ``report`` lists all.
        GraphdslError
            If the arena cannot hold the arrays, or an owner stand for the one that is declared.
        DriverError
            If the driver refuses; nothing is left behind.

        Examples
        --------
        >>> import graphdsl as gd
        >>> device = emulator()
        >>> g = Graph("small")
        >>> _ = g.memset(g.device_array("x", 64, "f4"), 1, name="set")
        >>> arena = gd.device_array(device, g.plan().nbytes_on(), "u1")
        >>> with g.instantiate(device, arena=arena) as exe:
        ...     exe["x"].address == arena.address
        True
        """
        from graphdsl.run.graph_exec import instantiate

        device = default_device(self.least_devices) if device is None else device
        how: dict[str, Any] = {"lanes": lanes, "durations": durations, "share_memory": share_memory}
        return instantiate(self, device, values, **how, arena=arena, stream=stream, owners=owners)

    def trace(
        self,
        target: Target | list[Target] = "sm_90",
        *,
        values: Mapping[str, Any] | None = None,
        lanes: Lanes = "auto",
        durations: Mapping[str, float] | None = None,
    ) -> tuple[Call, ...]:
        """The driver calls that would build the graph, in order; needs no GPU.

        Parameters
        ----------
        target : str, tuple of int, or list of these
            Compute capability to build for; a list has one for each device.
        values, lanes, durations
            As `instantiate` takes them.
        """
        several = None if isinstance(target, list) else self.least_devices
        device = emulator(target=target, build_only=True, devices=several)
        with self.instantiate(device, values=values, lanes=lanes, durations=durations) as graph_exec:
            return graph_exec.calls


def from_handle(graph: Any, device: Driver | None = None, *, owner: Any = None, name: str = "imported") -> Graph:
    """A graph that somebody else has built, as a graph of this package: drawn, checked, added to, instantiated.

    It is read once, and stays as it is there. Kernel nodes keep the functions that are loaded, under their C++ names,
    and take the bytes of their parameters; memory stays where it is, as external buffers ``mem0``, ``mem1`` and so on.

    Parameters
    ----------
    graph : object
        A ``CUgraph`` as an integer; a ``GraphDefinition`` or ``GraphBuilder`` of cuda.core; a ``torch.cuda.CUDAGraph``
        made with ``keep_graph=True``; or a `GraphExec`.
    device : Driver, optional
        Whose driver knows the graph; by default that of a `GraphExec`, or the first GPU.
    owner : object, optional
        What else to keep alive, such as who owns the memory and the functions. What ``graph`` is, if it is no integer,
        is kept in any case.
    name : str
        Name of the graph.

    Returns
    -------
    Graph

    Raises
    ------
    DeclarationError
        If it is no graph that can be looked into, or a node of it cannot be built again: conditional nodes, and those
        that allocate and free.
    DriverError
        If the driver does not know the graph.

    Examples
    --------
    >>> import numpy as np
    >>> g = Graph("small")
    >>> _ = g.memset(g.device_array("x", 8, np.float32), 0, name="clear") >> g.empty(name="done")
    >>> with g.instantiate(emulator()) as exe:
    ...     imported = from_handle(exe)
    >>> list(imported.dag.edges), imported.node("memset").destination
    ([('memset', 'empty')], mem0: uint32[8] device)
    """
    from graphdsl.declare.imported import Keeper
    from graphdsl.run.foreign_graph import graph_handle
    from graphdsl.run.importing import import_graph

    handle, kept, own = graph_handle(graph)
    made = Graph(name)
    import_graph(made, handle, device or own or cuda(0), Keeper((kept, owner) if kept and owner else kept or owner))
    return made


def cuda(ordinal: int = 0) -> CudaDevice:
    """A CUDA device; see `graphdsl.drivers.cuda.cuda_device`."""
    from graphdsl.drivers.cuda import cuda_device

    return cuda_device(ordinal)


def emulator(**options: Any) -> Emulator:
    """A device that needs no GPU and obeys the driver's rules; see `graphdsl.drivers.emulator.Emulator`."""
    from graphdsl.drivers.emulator import Emulator

    return Emulator(**options)


def default_device(devices: int = 1) -> Driver:
    """The first GPU, or an emulator where there is none; the logger ``graphdsl`` says which, and why.

    Parameters
    ----------
    devices : int
        How many devices the emulated computer has.
    """
    from graphdsl.drivers.cuda import unavailable

    reason = unavailable()
    if reason is None:
        device: Driver = cuda(0)
        _logger.info("graphs run on %s", device.name)
        return device
    device = emulator(devices=devices)
    _warn_once(f"{reason.rstrip('.')}: graphs run on the {device.name}, which is slow. Pass device= to choose.")
    return device


_warned: set[str] = set()


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        _logger.warning(message)
