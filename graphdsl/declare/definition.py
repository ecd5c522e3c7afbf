"""The definition of a graph: the methods that declare its operands and nodes.

They are strict where nothing sensible could be recorded (a name taken twice, a kernel that is none). This module must
not judge, plan or run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphdsl.declare.attributes import launch_attributes
from graphdsl.declare.batch import MemoryOperation, checked_operations, require_consent
from graphdsl.declare.condition import Condition, checked_cases, require_condition
from graphdsl.declare.elementwise import BLOCK, checked_call, launch_of
from graphdsl.declare.embed import bound_operands, checked_child, copy_level, require_free_names
from graphdsl.declare.event import Event, require_event
from graphdsl.declare.given import (
    allocated_array,
    arguments,
    block_of,
    checked_function,
    checked_name,
    dim3,
    extent,
    kernel_arguments,
)
from graphdsl.declare.independent import copy_independents
from graphdsl.declare.kernel import as_kernel, name_of
from graphdsl.declare.nesting import ChildNode, ConditionalNode, Form
from graphdsl.declare.node import NodeOrNodes
from graphdsl.declare.nodes import (
    AllocNode,
    BatchMemOpNode,
    CapturedNode,
    EmptyNode,
    EventRecordNode,
    EventWaitNode,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
)
from graphdsl.declare.operand_level import OperandLevel
from graphdsl.declare.operands import Array, Buffer, Extent, require_array
from graphdsl.declare.sources import SourceKernel
from graphdsl.declare.store import Level, declared_here
from graphdsl.declare.touches import given_touches, parameter_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from graphdsl.declare.attributes import GivenAttributes


class Definition(OperandLevel):
    """Nodes, edges and operands of a graph. Users make a `Graph`, which adds what can be done with one.

    Bodies of child and conditional nodes are definitions too: they share the operands of the graph that holds them.
    Several threads may declare into one graph; it is checked, drawn and instantiated while none of them does.

    Attributes
    ----------
    name, dag, root
        As `Level` has them.
    operands : dict
        `Buffer`, `Param`, `Condition` and `Event` objects by name, in the order of declaration.
    """

    def __init__(self, name: str = "graph") -> None:
        super().__init__(checked_name(name, "a graph"))
        self.operands = {}

    def _body(self, name: str, device: int | None = None) -> Definition:
        """A body of a node of this level: what is declared in it is named ``name/…``, and is on the node's device.

        The node that is made with it is to be added by `_add` or `_put`.
        """
        made = object.__new__(Definition)
        Level.__init__(made, name, self.root, f"{name}/", self.tags, self.device if device is None else device)
        made.operands = self.operands
        return made

    @property
    def devices(self) -> frozenset[int | None]:
        """Numbers of the devices that nodes, memory and events of the graph are on, in bodies too.

        None stands for that which the graph is instantiated on.
        """
        if not self.root.placed:
            return _HOME
        memory = (
            operand.device
            for operand in self.operands.values()
            if isinstance(operand, Event) or (isinstance(operand, Buffer) and operand.space == "device")
        )
        return frozenset((*memory, *(node.device for node in self.root.all_nodes)))

    @property
    def least_devices(self) -> int:
        """How many devices a computer must have for the graph.

        Examples
        --------
        >>> graph = Definition()
        >>> with graph.on(2):
        ...     _ = graph.device_array("x", 4, "f4")
        >>> graph.least_devices
        3
        """
        return 1 + max(number or 0 for number in self.devices)

    # Nodes

    def kernel(
        self,
        kernel: Any,
        *,
        grid: Any,
        block: Any = None,
        args: Iterable[Any] = (),
        shared_bytes: Extent | None = None,
        signature: Any = None,
        reads: Iterable[Array | str] | None = None,
        writes: Iterable[Array | str] | None = None,
        name: str | None = None,
        after: NodeOrNodes = (),
        **attributes: Unpack[GivenAttributes],
    ) -> KernelNode:
        """Declare a kernel launch.

        Parameters
        ----------
        kernel : callable or SourceKernel
            A function decorated with ``numba.cuda.jit``, a plain Python function, what `graphdsl.cuda_source`,
            `graphdsl.ptx`, `graphdsl.cubin` or `graphdsl.triton` gives, a ``Kernel`` of cuda.core, or a kernel that
            Triton compiled.
        grid, block : int, Expr, or tuple of up to three of them
            Blocks in the grid and threads in a block, x first. A kernel of Triton brings its block, and is cooperative
            where it was compiled to be.
        args : iterable
            One operand for each parameter: `Buffer`, `View`, `Param`, `Expr`, number, bool, or a tuple of these; for
            kernels that are not Python also None for null, and structures as records or bytes. A single one may stand
            by itself, and a dict gives all of them by the names of the parameters.
        shared_bytes : int or Expr, optional
            Dynamic shared memory of a block; by default what a kernel of Triton needs, and none for others.
        signature : str or Numba signature, optional
            Types to compile for, such as ``"void(float32[:], int32)"``; by default they follow the operands. For a
            kernel that is not Python, its parameters in C++, such as ``"const float* x, int n"``.
        reads, writes : iterable of Buffer, View or str, optional
            The arrays that it reads, and those that it writes: as they stand in ``args``, or by the names of their
            parameters. What is said goes before what the code of a Numba kernel tells; of other kernels nothing else is
            known, and arrays count as read and written. An array that ``reads`` leaves out is not read, and one that
            ``writes`` leaves out is not written; where only one of the two is given, the other follows the code of a
            Numba kernel, and counts as done by others. What is written in part, and matters elsewhere, is in both.
        name : str, optional
            Unique among the nodes; by default made from the kernel's name.
        after : node or list of nodes
            What it is ordered after.
        **attributes
            ``cooperative``, ``cluster``, ``preferred_cluster``, ``cluster_policy``, ``priority``, ``access_policy``,
            ``sync_domain`` and ``sync_domain_map``, as `GivenAttributes` explains; they follow no param.

        Returns
        -------
        KernelNode
        """
        made = as_kernel(kernel, node=name)
        if isinstance(made, SourceKernel) and signature is not None:
            made, signature = made.signed(signature), None
        if made.demands.cooperative:
            attributes = {"cooperative": True, **attributes}
        full = self._node_name(name, made.name.strip("<>"))
        given = kernel_arguments(args, full, made)
        node = KernelNode(
            full,
            self,
            declared_here(),
            made,
            dim3(grid, full, "grid"),
            block_of(block, made, full),
            extent(made.demands.shared_bytes if shared_bytes is None else shared_bytes, full, "shared_bytes"),
            given,
            signature,
            launch_attributes(full, attributes) if attributes else None,
            given_touches(reads, writes, given, lambda: made.parameters, full),
        )
        return self._add(node, after)

    def elementwise(
        self,
        function: Any,
        out: Array | Iterable[Array],
        args: Iterable[Any] = (),
        *,
        name: str | None = None,
        after: NodeOrNodes = (),
        **attributes: Unpack[GivenAttributes],
    ) -> KernelNode:
        """Declare a kernel that calls a scalar function for each element of arrays.

        Parameters
        ----------
        function : Elementwise
            A function decorated with `graphdsl.elementwise`.
        out : Buffer or View, or a tuple of these
            What takes the results, one array for each. What the function returns is rounded to the dtype, and must be
            of its kind: no float goes into integers.
        args : iterable
            One for each parameter: arrays of the shape of ``out``, of which the function is given the element, arrays
            of no dimensions, numbers, params and expressions. A single one may stand by itself, and a dict gives them
            by name. ``out`` may be among them; arrays that overlap it otherwise are refused by a check.
        name : str, optional
            Unique among the nodes; by default made from the function's name.
        after, **attributes
            As for `kernel`.

        Returns
        -------
        KernelNode
            It has one thread for each element. `graphdsl.passes.fuse_elementwise` makes one kernel of several.

        Examples
        --------
        >>> import numpy as np
        >>> import graphdsl as gd
        >>> @gd.elementwise
        ... def scale(x, gain):
        ...     return x * gain
        >>> g = gd.Graph("demo")
        >>> n = g.param("n", np.int32, default=100)
        >>> gain = g.param("gain", np.float32, default=2.0)
        >>> x, y = (g.device_array(name, 1000, np.float32) for name in "xy")
        >>> g.elementwise(scale, y[:n], (x[:n], gain)).grid
        (maximum(cdiv(n, 256), 1), 1, 1)
        """
        launch = launch_of((checked_call(function, out, args, name or name_of(function, "elementwise")),))
        return self.kernel(
            launch.kernel, grid=launch.grid, block=BLOCK, args=launch.args, name=name, after=after, **attributes
        )

    def memcpy(
        self,
        destination: Array,
        source: Array,
        *,
        nbytes: Extent | None = None,
        name: str | None = None,
        after: NodeOrNodes = (),
    ) -> MemcpyNode:
        """Declare a copy; the destination comes first, as in `numpy.copyto`.

        Parameters
        ----------
        destination, source : Buffer or View
            Arrays in device, pinned or pageable memory that agree in shape and dtype. They may have gaps, as long as
            they are slices of rows of bytes to the driver: three dimensions.
        nbytes : int or Expr, optional
            Bytes to copy from the start of both, whatever their dtypes; both are contiguous.
        name, after
            As for `kernel`; the default name tells source and destination.
        """
        require_array(destination, name, "destination")
        require_array(source, name, "source")
        full = self._node_name(name, f"{_last(source)}_to_{_last(destination)}")
        size = None if nbytes is None else extent(nbytes, full, "nbytes")
        return self._add(MemcpyNode(full, self, declared_here(), destination, source, size), after)

    def memset(self, destination: Array, value: Any, *, name: str | None = None, after: NodeOrNodes = ()) -> MemsetNode:
        """Declare that every element of ``destination`` is set to ``value``.

        Parameters
        ----------
        destination : Buffer or View
            Array in device or pinned memory. It may have gaps, as long as it is rows of elements: two dimensions.
        value : number or Expr
            A value of its dtype. The driver repeats 1, 2 or 4 bytes, so an 8- or 16-byte element takes only values
            whose bytes repeat so, such as 0.
        name, after
            As for `kernel`.
        """
        require_array(destination, name, "destination")
        full = self._node_name(name, f"set_{_last(destination)}")
        return self._add(MemsetNode(full, self, declared_here(), destination, value), after)

    def host(
        self,
        function: Callable[..., Any],
        args: Iterable[Any] = (),
        *,
        reads: Iterable[Array | str] | None = None,
        writes: Iterable[Array | str] | None = None,
        name: str | None = None,
        after: NodeOrNodes = (),
    ) -> HostNode:
        """Declare a call of a Python function on the host.

        Parameters
        ----------
        function : callable
            Called in a thread of the driver; it may make no CUDA calls. An exception is kept and raised by the next
            synchronise.
        args : iterable
            Host buffers and views arrive as NumPy arrays, params and expressions as numbers, all else as it is. A
            single one may stand by itself.
        reads, writes, name, after
            As for `kernel`; nobody reads the code of the function.
        """
        checked_function(function, name)
        full = self._node_name(name, name_of(function, "host").strip("<>"))
        given = arguments(args, full)
        touches = given_touches(reads, writes, given, lambda: parameter_names(function), full)
        return self._add(HostNode(full, self, declared_here(), function, given, touches), after)

    def capture(
        self,
        function: Callable[..., Any],
        args: Iterable[Any] = (),
        *,
        emulate: Callable[..., Any] | None = None,
        reads: Iterable[Array | str] | None = None,
        writes: Iterable[Array | str] | None = None,
        name: str | None = None,
        after: NodeOrNodes = (),
    ) -> CapturedNode:
        """Declare work of a library, such as cuBLAS, cuDNN, NCCL, CuPy or PyTorch, as one node.

        The function is called when the graph is instantiated, once for each exec, and what it puts into the stream is
        recorded (stream capture). It may not do what cannot be recorded: allocate, wait, or use another stream that
        does not begin at this one. So give it its results to write into, and call it once before, outside of the graph:
        libraries set themselves up at their first call.

        Parameters
        ----------
        function : callable
            Called as ``function(stream, *args)``. The stream has ``handle``, an integer, and ``__cuda_stream__``. What
            it returns is kept alive as long as the exec can run the work.
        args : iterable
            Arrays in device memory arrive as objects with ``__cuda_array_interface__``, host memory as NumPy arrays,
            params and expressions as numbers, all else as it is. A single one may stand by itself.
        emulate : callable, optional
            Stands for the work where there is no GPU: called as ``emulate(*args)`` when the node runs, with NumPy
            arrays that it writes its results into.
        reads, writes, name, after
            As for `kernel`; nobody sees what the library does.

        Examples
        --------
        >>> import numpy as np
        >>> def product(stream, a, b, out):
        ...     import cupy
        ...     with cupy.cuda.Stream.from_external(stream):
        ...         cupy.matmul(cupy.asarray(a), cupy.asarray(b), out=cupy.asarray(out))
        >>> graph = Definition("demo")
        >>> a, b, c = (graph.device_array(name, (8, 8), np.float32) for name in "abc")
        >>> graph.capture(product, (a, b, c), emulate=lambda a, b, out: np.matmul(a, b, out=out)).name
        'product'
        """
        checked_function(function, name, "captured")
        if emulate is not None:
            checked_function(emulate, name, "captured", "emulate")
        full = self._node_name(name, name_of(function, "captured").strip("<>"))
        given = arguments(args, full)
        touches = given_touches(reads, writes, given, lambda: parameter_names(function, 1), full)
        return self._add(CapturedNode(full, self, declared_here(), function, given, emulate, touches), after)

    def empty(self, *, name: str | None = None, after: NodeOrNodes = ()) -> EmptyNode:
        """Declare a node that does nothing: a barrier."""
        return self._add(EmptyNode(self._node_name(name, "empty"), self, declared_here()), after)

    def alloc(
        self, name: str, shape: int | tuple[int, ...], dtype: Any, *, node: str | None = None, after: NodeOrNodes = ()
    ) -> AllocNode:
        """Declare that a node allocates an array of the device, which is there until a `free` of it.

        The driver gives arrays that are never there at the same time the same memory, and gives memory back when no
        graph uses it. For arrays that are there between launches, use `device_array`.

        Parameters
        ----------
        name : str
            Of the array, unique among the operands; a scope prefixes it.
        shape, dtype
            As for `device_array`.
        node : str, optional
            Name of the node; by default made from that of the array.
        after : node or list of nodes
            What it is ordered after.

        Returns
        -------
        AllocNode
            Its ``array`` is what kernels and copies take.

        Examples
        --------
        >>> import numpy as np
        >>> graph = Definition("demo")
        >>> alloc = graph.alloc("scratch", 1024, np.float32)
        >>> _ = alloc >> graph.memset(alloc.array, 0) >> graph.free(alloc)
        >>> list(graph.dag)
        ['alloc_scratch', 'set_scratch', 'free_scratch']
        """
        full = self._node_name(node, f"alloc_{name}")
        befores = self._ordered_after(after, full)
        array = self._buffer(name, shape, dtype, "device", allocated=True)
        return self._add(AllocNode(full, self, declared_here(), array), befores)

    def free(self, what: AllocNode | Buffer, *, name: str | None = None, after: NodeOrNodes = ()) -> FreeNode:
        """Declare that a node frees what an `alloc` of this graph allocated.

        Parameters
        ----------
        what : AllocNode or Buffer
            The node that allocated it, or its array.
        name, after
            As for `kernel`.
        """
        array = allocated_array(what, name)
        full = self._node_name(name, f"free_{_last(array)}")
        return self._add(FreeNode(full, self, declared_here(), array), after)

    def record(self, event: Event, *, name: str | None = None, after: NodeOrNodes = ()) -> EventRecordNode:
        """Declare that ``event`` is recorded: whoever waits for it waits for what is ordered before this node.

        Parameters
        ----------
        event : Event
            Of this graph.
        name, after
            As for `kernel`.
        """
        require_event(event, name)
        full = self._node_name(name, f"record_{event.name.rpartition('/')[2]}")
        return self._add(EventRecordNode(full, self, declared_here(), event), after)

    def wait(self, event: Event, *, name: str | None = None, after: NodeOrNodes = ()) -> EventWaitNode:
        """Declare that what is ordered after this node waits for the last record of ``event`` before the launch.

        Parameters
        ----------
        event : Event
            Of this graph; mostly one of somebody else. Between nodes of a graph edges do this, and better.
        name, after
            As for `kernel`.
        """
        require_event(event, name)
        full = self._node_name(name, f"wait_{event.name.rpartition('/')[2]}")
        return self._add(EventWaitNode(full, self, declared_here(), event), after)

    def batch_mem_ops(
        self,
        operations: MemoryOperation | Iterable[MemoryOperation],
        *,
        may_deadlock: bool,
        name: str | None = None,
        after: NodeOrNodes = (),
    ) -> BatchMemOpNode:
        """Declare a node that writes and waits for single words of memory.

        It is how graphs meet what CUDA does not order: another process, another device, the host. CUDA sees nothing of
        the order that waits make, and a wait that nobody ends holds the graph up for ever.

        Parameters
        ----------
        operations : list of MemoryOperation
            What `write_value`, `wait_value` and `memory_barrier` give; done one after the other.
        may_deadlock : bool
            True says that you know: what is waited for is written by something that this graph does not hold up.
        name, after
            As for `kernel`.

        Examples
        --------
        >>> import numpy as np
        >>> from graphdsl.declare.batch import wait_value, write_value
        >>> graph = Definition("demo")
        >>> flags = graph.host_array("flags", 2, np.uint32)
        >>> meet = graph.batch_mem_ops([write_value(flags[0], 1), wait_value(flags[1], 1)], may_deadlock=True)
        >>> print(*meet.operations)
        write_value(flags[0], 1) wait_value(flags[1], 1, geq)
        """
        require_consent(may_deadlock, name)
        checked = checked_operations(operations, name)
        return self._add(BatchMemOpNode(self._node_name(name, "mem_ops"), self, declared_here(), checked), after)

    # Nodes that hold others

    def child(
        self,
        graph: Definition,
        bind: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        after: NodeOrNodes = (),
    ) -> ChildNode:
        """Declare another graph as one node of this one.

        The graph is copied as it is now: later changes of it do not reach this one. Its nodes and operands are named
        behind the name of the node, such as ``"filter/gain"``.

        Parameters
        ----------
        graph : Graph
            What the node does; it can be a child any number of times.
        bind : dict, optional
            What stands for operands of ``graph``, by their names there: arrays of this graph for its buffers, numbers,
            params and expressions for its params. The others become operands of this graph.
        name, after
            As for `kernel`; the default name is that of the graph.

        Examples
        --------
        >>> import numpy as np
        >>> clear = Definition("clear")
        >>> _ = clear.memset(clear.device_array("x", 4, np.float32), 0, name="set")
        >>> graph = Definition("demo")
        >>> y = graph.device_array("y", 4, np.float32)
        >>> node = graph.child(clear, {"x": y})
        >>> node.name, [node.name for node in node.body.nodes], list(graph.operands)
        ('clear', ['clear/set'], ['y'])
        """
        checked_child(graph, self, name)
        full = self._node_name(name, graph.name)
        require_free_names(graph, self, full)
        befores = self._ordered_after(after, full)
        substitutes = bound_operands(graph, self, full, {} if bind is None else bind)
        body = self._body(full)
        self._add(node := ChildNode(full, self, declared_here(), body, graph.name), befores)
        copy_level(graph, body, substitutes, f"{full}/")
        copy_independents(graph, body, f"{full}/")
        return node

    def if_(self, condition: Condition, *, name: str | None = None, after: NodeOrNodes = ()) -> ConditionalNode:
        """Declare a node that runs its body if ``condition`` is not 0, and its other body, ``otherwise``, if it is.

        Parameters
        ----------
        condition : Condition
            Belongs to this node alone.
        name, after
            As for `kernel`.

        Examples
        --------
        >>> graph = Definition("demo")
        >>> large = graph.condition("large", default=0)
        >>> branch = graph.if_(large, name="branch")
        >>> with branch as body:
        ...     body.empty(name="shrink").name
        'branch/then/shrink'
        >>> branch.otherwise.empty(name="keep").name
        'branch/otherwise/keep'
        """
        return self._conditional("if", condition, ("then", "otherwise"), name, after)

    def while_(self, condition: Condition, *, name: str | None = None, after: NodeOrNodes = ()) -> ConditionalNode:
        """Declare a node that runs its body again and again while ``condition`` is not 0; a kernel in it sets it to 0.

        Parameters
        ----------
        condition, name, after
            As for `if_`.

        Examples
        --------
        >>> graph = Definition("demo")
        >>> more = graph.condition("more", default=1)
        >>> with graph.while_(more, name="loop") as body:
        ...     body.empty(name="step").name
        'loop/step'
        """
        return self._conditional("while", condition, ("",), name, after)

    def switch(
        self, condition: Condition, cases: int, *, name: str | None = None, after: NodeOrNodes = ()
    ) -> ConditionalNode:
        """Declare a node that runs the body whose number is the value of ``condition``, and none if there is none.

        Parameters
        ----------
        condition, name, after
            As for `if_`.
        cases : int
            Number of bodies.

        Examples
        --------
        >>> graph = Definition("demo")
        >>> choice = graph.switch(graph.condition("which", default=0), 3, name="choice")
        >>> choice.bodies[2].empty(name="stop").name
        'choice/2/stop'
        """
        return self._conditional(
            "switch", condition, [str(case) for case in range(checked_cases(cases, name))], name, after
        )

    def _conditional(
        self, form: Form, condition: Any, bodies: Iterable[str], name: str | None, after: NodeOrNodes
    ) -> ConditionalNode:
        require_condition(condition, name)
        full = self._node_name(name, form)
        made = tuple(self._body(f"{full}/{body}" if body else full) for body in bodies)
        return self._add(ConditionalNode(full, self, declared_here(), form, condition, made), after)


_HOME: frozenset[int | None] = frozenset({None})


def _last(array: Array) -> str:
    return array.buffer.name.rpartition("/")[2]
