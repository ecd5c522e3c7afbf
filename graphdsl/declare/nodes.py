"""The kinds of nodes that do something: what, and to which operands.

A node is immutable once declared; its edges live in the definition. This module must not decide whether a node makes
sense: it records what was said, and `graphdsl.check` judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.batch import MemoryOperation
from graphdsl.declare.condition import Condition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import Expr, Scalar
from graphdsl.declare.kernel import Kernel
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Array, Buffer, Extent
from graphdsl.declare.rows import Dimension, dimensions
from graphdsl.declare.touches import Touches
from graphdsl.errors import Location

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition

Dim3 = tuple[Extent, Extent, Extent]


class KernelNode(Node):
    """A kernel launch.

    Attributes
    ----------
    kernel : Kernel
        What is launched.
    grid, block : tuple of three int or Expr
        Blocks in the grid, threads in a block.
    shared_bytes : int or Expr
        Dynamic shared memory of a block, in bytes.
    args : tuple
        One `Buffer`, `View`, `Param`, `Expr` or literal for each parameter of the kernel.
    signature : object or None
        A Numba signature that the user asked for.
    attributes : LaunchAttributes or None
        Cluster, priority and so on; None if none was given.
    touches : Touches or None
        What the user says that it reads and writes; None where nothing was said.
    """

    __slots__ = ("args", "attributes", "block", "grid", "kernel", "shared_bytes", "signature", "touches")
    kind = "kernel"

    def __init__(
        self,
        name: str,
        definition: Definition,
        location: Location,
        kernel: Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: Extent,
        args: tuple[Any, ...],
        signature: Any = None,
        attributes: LaunchAttributes | None = None,
        touches: Touches | None = None,
    ) -> None:
        super().__init__(name, definition, location)
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.shared_bytes = shared_bytes
        self.args = args
        self.signature = signature
        self.attributes = attributes
        self.touches = touches

    @property
    def window(self) -> Array | None:
        """The memory that an access policy of the node is about, if it has one."""
        policy = self.attributes and self.attributes.access_policy
        return policy.array if policy else None

    def operands(self) -> tuple[Any, ...]:
        operands = (*self.grid, *self.block, self.shared_bytes, *self.args)
        return operands if self.attributes is None or self.window is None else (*operands, self.window)

    def fields(self) -> Iterator[tuple[str, Any]]:
        yield from (("grid", self.grid), ("block", self.block), ("shared_bytes", self.shared_bytes))
        for index, arg in enumerate(self.args):
            yield self.argument_name(index), arg
        if self.attributes is not None and self.window is not None:
            yield "access_policy", self.window

    def argument_name(self, index: int) -> str:
        """What messages call an argument: the kernel's own name for it, or its number where the kernel has none."""
        parameters = self.kernel.parameters
        return f"argument {parameters[index]!r}" if index < len(parameters) else f"args[{index}]"


class MemcpyNode(Node):
    """A copy of bytes from ``source`` to ``destination``.

    Attributes
    ----------
    destination, source : Buffer or View
        Where to, where from.
    nbytes : int, Expr or None
        Bytes to copy; None copies all elements, which then must agree in shape and dtype.
    """

    __slots__ = ("destination", "nbytes", "source")
    kind = "memcpy"

    def __init__(
        self,
        name: str,
        definition: Definition,
        location: Location,
        destination: Array,
        source: Array,
        nbytes: Extent | None,
    ) -> None:
        super().__init__(name, definition, location)
        self.destination = destination
        self.source = source
        self.nbytes = nbytes

    @property
    def size(self) -> Extent:
        """Bytes copied: ``nbytes``, or those of the whole destination."""
        return self.destination.nbytes if self.nbytes is None else self.nbytes

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What is copied, as rows of bytes: strides of the destination first, then of the source.

        Empty if the two differ in their number of dimensions, which a check reports.
        """
        destination, source = self.destination, self.source
        if self.nbytes is not None or (destination.layout == "C" and source.layout == "C"):  # by far the most frequent
            return (Dimension(self.size, (1, 1)),)
        return dimensions(destination, source) if destination.ndim == source.ndim else ()

    @property
    def device(self) -> int | None:
        """Without `Graph.on`, the device that has the destination, else that which has the source."""
        array = self.destination if self.destination.space == "device" else self.source
        return array.buffer.device if self.on is None else self.on

    def operands(self) -> tuple[Any, ...]:
        return (self.destination, self.source, self.size)

    def fields(self) -> Iterator[tuple[str, Any]]:
        yield from (("destination", self.destination), ("source", self.source))
        if self.nbytes is not None:
            yield "nbytes", self.nbytes


class MemsetNode(Node):
    """Every element of ``destination`` set to one value.

    Attributes
    ----------
    destination : Buffer or View
        What is set.
    value : number or Expr
        A value of the dtype of the destination. Driver memsets repeat 1, 2 or 4 bytes: an element of 8 or 16
        bytes must have a value whose bytes repeat so, as 0 has.
    """

    __slots__ = ("destination", "value")
    kind = "memset"

    def __init__(
        self, name: str, definition: Definition, location: Location, destination: Array, value: Scalar
    ) -> None:
        super().__init__(name, definition, location)
        self.destination = destination
        self.value = value

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What is set, as rows of bytes."""
        destination = self.destination
        return (Dimension(destination.nbytes, (1,)),) if destination.layout == "C" else dimensions(destination)

    @property
    def device(self) -> int | None:
        """Without `Graph.on`, the device that has the destination."""
        return self.destination.buffer.device if self.on is None else self.on

    def operands(self) -> tuple[Any, ...]:
        return (self.destination, self.value)

    def fields(self) -> Iterator[tuple[str, Any]]:
        yield from (("destination", self.destination), ("value", self.value))


class HostNode(Node):
    """A Python function called on the host, in a thread of the driver.

    Attributes
    ----------
    function : callable
        Called with ``args``; it may make no CUDA calls.
    args : tuple
        Host buffers and views arrive as NumPy arrays, params and expressions as numbers, all else as it is.
    touches : Touches or None
        What the user says that it reads and writes; None where nothing was said.
    """

    __slots__ = ("args", "function", "touches")
    kind = "host"

    def __init__(
        self,
        name: str,
        definition: Definition,
        location: Location,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        touches: Touches | None = None,
    ) -> None:
        super().__init__(name, definition, location)
        self.function = function
        self.args = args
        self.touches = touches

    @property
    def device(self) -> None:
        """It runs on the host."""
        return None

    def operands(self) -> tuple[Any, ...]:
        return self.args

    def fields(self) -> Iterator[tuple[str, Any]]:
        return ((f"args[{index}]", arg) for index, arg in enumerate(self.args))


class NativeHostNode(Node):
    """A C function called on the host, as an imported graph has it.

    Attributes
    ----------
    function, user_data : int
        Its address, and what it is called with.
    keeper : Keeper
        What keeps both alive.
    """

    __slots__ = ("function", "keeper", "user_data")
    kind = "host"

    def __init__(
        self, name: str, definition: Definition, location: Location, function: int, user_data: int, keeper: Any
    ) -> None:
        super().__init__(name, definition, location)
        self.function = function
        self.user_data = user_data
        self.keeper = keeper

    @property
    def device(self) -> None:
        """It runs on the host."""
        return None


class CapturedNode(Node):
    """Work that a library puts into a stream, recorded when the graph is instantiated.

    Attributes
    ----------
    function : callable
        Called once for each exec, with a stream and ``args``: what it puts into the stream is what the node does.
    args : tuple
        Arrays in device memory arrive as objects with ``__cuda_array_interface__``, host memory as NumPy arrays, params
        and expressions as numbers, all else as it is.
    emulate : callable or None
        What stands for the work where there is no GPU: called with ``args`` when the node runs, all arrays of NumPy.
    touches : Touches or None
        What the user says that it reads and writes; None where nothing was said.
    """

    __slots__ = ("args", "emulate", "function", "touches")
    kind = "captured"

    def __init__(
        self,
        name: str,
        definition: Definition,
        location: Location,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        emulate: Callable[..., Any] | None,
        touches: Touches | None = None,
    ) -> None:
        super().__init__(name, definition, location)
        self.function = function
        self.args = args
        self.emulate = emulate
        self.touches = touches

    def operands(self) -> tuple[Any, ...]:
        return self.args

    def fields(self) -> Iterator[tuple[str, Any]]:
        return ((f"args[{index}]", arg) for index, arg in enumerate(self.args))


class EmptyNode(Node):
    """Does nothing: a barrier that turns n times m edges into n plus m."""

    __slots__ = ()
    kind = "empty"

    @property
    def device(self) -> None:
        """It runs nowhere."""
        return None


class GraphMemoryNode(Node):
    """Works on memory that the graph allocates.

    Attributes
    ----------
    array : Buffer
        The memory.
    """

    __slots__ = ("array",)

    def __init__(self, name: str, definition: Definition, location: Location, array: Buffer) -> None:
        super().__init__(name, definition, location)
        self.array = array

    @property
    def device(self) -> int | None:
        """That which has the memory."""
        return self.array.device

    def operands(self) -> tuple[Any, ...]:
        return (self.array,)

    def fields(self) -> Iterator[tuple[str, Any]]:
        yield "array", self.array


class AllocNode(GraphMemoryNode):
    """Allocates memory of the device, which is there until a node frees it."""

    __slots__ = ()
    kind = "alloc"


class FreeNode(GraphMemoryNode):
    """Frees what an alloc node of the graph allocated."""

    __slots__ = ()
    kind = "free"


class BatchMemOpNode(Node):
    """Operations on single words of memory, one after the other.

    Attributes
    ----------
    operations : tuple of MemoryOperation
        What is done.
    """

    __slots__ = ("operations",)
    kind = "batch mem op"

    def __init__(
        self, name: str, definition: Definition, location: Location, operations: tuple[MemoryOperation, ...]
    ) -> None:
        super().__init__(name, definition, location)
        self.operations = operations

    def operands(self) -> tuple[Any, ...]:
        return tuple(operand for each in self.operations for operand in (each.array, each.value) if operand is not None)

    def fields(self) -> Iterator[tuple[str, Any]]:
        for index, each in enumerate(self.operations):
            if each.array is not None:
                yield from ((f"operations[{index}].array", each.array), (f"operations[{index}].value", each.value))


class EventNode(Node):
    """Works on an event.

    Attributes
    ----------
    event : Event
        Which.
    """

    __slots__ = ("event",)

    def __init__(self, name: str, definition: Definition, location: Location, event: Event) -> None:
        super().__init__(name, definition, location)
        self.event = event

    @property
    def device(self) -> int | None:
        """That of the event."""
        return self.event.device

    def operands(self) -> tuple[Any, ...]:
        return (self.event,)

    def fields(self) -> Iterator[tuple[str, Any]]:
        yield "event", self.event


class EventRecordNode(EventNode):
    """Records an event: whoever waits for it waits for what is ordered before this node."""

    __slots__ = ()
    kind = "event record"


class EventWaitNode(EventNode):
    """Waits for the last record of an event that came before the launch, in a stream or in another graph."""

    __slots__ = ()
    kind = "event wait"


def buffers_of(node: Node) -> list[Buffer]:
    """The buffers that a node refers to, also through views and tuples, once for each time.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> x, y = (graph.device_array(name, 8, "f4") for name in "xy")
    >>> buffers_of(graph.memcpy(y, x[:]))
    [y: float32[8] device, x: float32[8] device]
    """
    found = []
    if isinstance(node, KernelNode) and node.attributes is None:  # by far the most frequent
        waiting = list(node.args[::-1])
    else:
        waiting = list(node.operands()[::-1])
    while waiting:
        operand = waiting.pop()
        if isinstance(operand, Array):
            found.append(operand.buffer)
        elif type(operand) is tuple:
            waiting += operand[::-1]
    return found


def named_operands(node: Node) -> Iterator[tuple[str, Any]]:
    """The buffers and params that a node refers to, also through views, expressions and tuples, by name."""
    yield from _named(node.operands())


def _named(operand: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(operand, tuple):
        for item in operand:
            yield from _named(item)
    elif isinstance(operand, Array):
        yield operand.buffer.name, operand.buffer
    elif isinstance(operand, (Condition, Event)):
        yield operand.name, operand
    if isinstance(operand, (Array, Expr)):
        for param in operand.params:
            yield param.name, param
