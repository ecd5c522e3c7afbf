"""The definition of a graph: the methods that declare its operands and nodes.

They are strict where nothing sensible could be recorded (a name taken twice, a kernel that is none). This module must
not judge, plan or run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from graphdsl.declare.attributes import launch_attributes
from graphdsl.declare.batch import MemoryOperation, checked_operations, require_consent
from graphdsl.declare.condition import Condition, checked_cases, require_condition
from graphdsl.declare.embed import bound_operands, checked_child, copy_level, require_free_names
from graphdsl.declare.event import Event, event_handle, require_event, require_own_timing
from graphdsl.declare.expressions import Param
from graphdsl.declare.given import (
    allocated_array,
    arguments,
    block_of,
    checked_dtype,
    checked_function,
    checked_name,
    checked_shape,
    checked_strides,
    dim3,
    extent,
    kernel_arguments,
)
from graphdsl.declare.interop import device_of, foreign_array
from graphdsl.declare.kernel import as_kernel, name_of
from graphdsl.declare.nodes import (
    AllocNode,
    BatchMemOpNode,
    CapturedNode,
    ChildNode,
    ConditionalNode,
    EmptyNode,
    EventRecordNode,
    EventWaitNode,
    Form,
    FreeNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    NodeOrNodes,
)
from graphdsl.declare.operands import Array, Buffer, Extent, Space, require_array
from graphdsl.declare.sources import SourceKernel
from graphdsl.declare.store import Level, declared_here
from graphdsl.errors import DeclarationError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from graphdsl.declare.attributes import GivenAttributes

Operand = Buffer | Param | Condition | Event
OperandType = TypeVar("OperandType", Buffer, Param, Condition, Event)


class Definition(Level):
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
        self.operands: dict[str, Operand] = {}

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
        memory = (
            operand.device
            for operand in self.operands.values()
            if isinstance(operand, Event) or (isinstance(operand, Buffer) and operand.space == "device")
        )
        return frozenset((*memory, *(node.device for node in self.root.all_nodes)))

    # Operands

    def param(self, name: str, dtype: Any, default: Any | None = None) -> Param:
        """Declare a named scalar that `GraphExec.update` can change.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        dtype : dtype
            NumPy scalar type: bool, integer, float or complex.
        default : number, optional
            The value until an update changes it. Without one, `instantiate` must be given a value.

        Raises
        ------
        DeclarationError
            If the name is taken, the dtype is not a scalar one, or the default does not fit it.

        Examples
        --------
        >>> import numpy as np
        >>> Definition().param("gain", np.float32, default=1.0).dtype
        dtype('float32')
        """
        full = self._operand_name(name)
        made = Param(full, checked_dtype(dtype, full, scalar=True), default, self.root, declared_here())
        return self._keep(made)

    def device_array(
        self, name: str, shape: int | tuple[int, ...], dtype: Any, *, pitch: int | Literal["auto"] | None = None
    ) -> Buffer:
        """Declare an array in device memory; every exec owns its own.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        shape : int or tuple of int
            Extents in elements; the array is in C order.
        dtype : dtype
            Type of an element; structured dtypes are allowed.
        pitch : int or "auto", optional
            Bytes from the start of a row to that of the next, where a row is all of the last dimension; ``"auto"`` is
            the next multiple of 512 bytes, as `cuMemAllocPitch` gives it. By default rows follow one another without
            a gap.

        Examples
        --------
        >>> import numpy as np
        >>> Definition().device_array("image", (480, 640, 3), np.uint8, pitch=4).strides
        (2560, 4, 1)
        >>> Definition().device_array("table", (8, 100), np.float32, pitch="auto").strides
        (512, 4)
        """
        return self._buffer(name, shape, dtype, "device", pitch)

    def host_array(self, name: str, shape: int | tuple[int, ...], dtype: Any, *, pinned: bool = True) -> Buffer:
        """Declare an array in host memory; every exec owns its own, and `GraphExec` gives it as a NumPy array.

        Parameters
        ----------
        name, shape, dtype
            As for `device_array`.
        pinned : bool
            Page-locked, so that copies run at full speed and without staging; kernels can read it too.
        """
        return self._buffer(name, shape, dtype, "pinned" if pinned else "pageable")

    def _buffer(
        self, name: str, shape: Any, dtype: Any, space: Space, pitch: Any = None, *, allocated: bool = False
    ) -> Buffer:
        full = self._operand_name(name)
        extents, made_of = checked_shape(shape, full), checked_dtype(dtype, full)
        strides = checked_strides(extents, made_of, pitch, full)
        made = Buffer(
            full,
            extents,
            made_of,
            space,
            self.root,
            strides=strides,
            allocated=allocated,
            location=declared_here(),
            device=self.device if space == "device" else None,
        )
        return self._keep(made)

    def external(self, name: str, owner: Any) -> Buffer:
        """Adopt memory that somebody else owns; it is kept alive, and can be re-bound by an update.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        owner : object
            A NumPy array or an object with the buffer protocol (host memory), or an object with
            ``__cuda_array_interface__`` or ``__dlpack__`` (device memory, or pinned memory where DLPack says so). One
            that tells which device has the memory (CuPy, PyTorch, ours) is on that device; of another, `on` says so.

        Raises
        ------
        DeclarationError
            If the memory cannot be found or used.

        Examples
        --------
        >>> import numpy as np
        >>> Definition().external("w", np.zeros(4, np.float32))
        w: float32[4] pageable
        """
        full = self._operand_name(name)
        found = foreign_array(owner, full)
        made = Buffer(
            full,
            found.shape,
            checked_dtype(found.dtype, full),
            found.space,
            self.root,
            strides=found.strides,
            owner=owner,
            keep=found.keep,
            readonly=found.readonly,
            location=declared_here(),
            device=self._device_of(owner) if found.space == "device" else None,
        )
        return self._keep(made)

    def _device_of(self, owner: Any) -> int | None:
        told = device_of(owner)
        return self.device if told is None else told

    def condition(self, name: str, default: int | None = None) -> Condition:
        """Declare a value that decides what a conditional node does; kernels set it.

        A kernel takes it as an argument (a uint64) and calls ``graphdsl.device.set_condition(condition, value)``.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        default : int, optional
            The value at the start of each launch, a uint32. Without one it is undefined until a kernel sets it.

        Examples
        --------
        >>> Definition().condition("more", default=1)
        more
        """
        full = self._operand_name(name)
        made = Condition(full, default, self.root, declared_here())
        return self._keep(made)

    def event(self, name: str, owner: Any = None, *, timing: bool = False) -> Event:
        """Declare an event, which nodes record and wait for; every exec has its own, or adopts that of ``owner``.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        owner : int or object, optional
            An event of somebody else: its handle, or an event of cuda.core, PyTorch, Numba or CuPy. It is kept alive,
            and an update can put another in its place.
        timing : bool
            Let the time between it and another be asked, as ``exe["stop"].elapsed_since(exe["start"])``. A node that
            records an event costs some microseconds. One of somebody else tells its owner.

        Examples
        --------
        >>> graph = Definition("demo")
        >>> graph.record(graph.event("done"), after=graph.empty()).name
        'record_done'
        """
        full = self._operand_name(name)
        if owner is not None:
            event_handle(owner, f"owner of {full!r}")
            require_own_timing(timing, full)
        made = Event(full, owner, bool(timing), self.root, declared_here(), self.device)
        return self._keep(made)

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
        node = KernelNode(
            full,
            self,
            declared_here(),
            made,
            dim3(grid, full, "grid"),
            block_of(block, made, full),
            extent(made.demands.shared_bytes if shared_bytes is None else shared_bytes, full, "shared_bytes"),
            kernel_arguments(args, full, made),
            signature,
            launch_attributes(full, attributes) if attributes else None,
        )
        return self._add(node, after)

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
        name, after
            As for `kernel`.
        """
        checked_function(function, name)
        full = self._node_name(name, name_of(function, "host").strip("<>"))
        return self._add(HostNode(full, self, declared_here(), function, arguments(args, full)), after)

    def capture(
        self,
        function: Callable[..., Any],
        args: Iterable[Any] = (),
        *,
        emulate: Callable[..., Any] | None = None,
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
        name, after
            As for `kernel`.

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
        return self._add(CapturedNode(full, self, declared_here(), function, arguments(args, full), emulate), after)

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

    # Names

    def _operand_name(self, name: str) -> str:
        full = self._full_prefix() + checked_name(name, "an operand")
        if full in self.operands:
            raise self._operand_taken(full)
        return full

    def _operand_taken(self, full: str) -> DeclarationError:
        return DeclarationError(
            f"graph {self.root.name!r} already has an operand of this name",
            field="name",
            value=repr(full),
            remedy="Choose another name, or make a new Graph.",
            location=self.operands[full].location,
        )

    def _keep(self, operand: OperandType) -> OperandType:
        if self.operands.setdefault(operand.name, operand) is not operand:  # another thread was faster
            raise self._operand_taken(operand.name)
        return operand


def _last(array: Array) -> str:
    return array.buffer.name.rpartition("/")[2]
