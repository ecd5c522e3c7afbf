"""One operation of a graph: what it does and to which operands.

A node is immutable once declared; its edges live in the definition. This module must not decide whether a node makes
sense: it records what was said, and `graphdsl.check` judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.expressions import Expr, Scalar
from graphdsl.declare.kernel import Kernel
from graphdsl.declare.operands import Array, Extent
from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition

NodeType = TypeVar("NodeType", bound="Node")
Dim3 = tuple[Extent, Extent, Extent]


class Node:
    """One operation of a graph; made by the methods of `Graph`.

    ``a >> b`` orders ``b`` after ``a``; lists may stand on either side of a node. Between two lists Python knows no
    ``>>``: use `Graph.edge`.

    Attributes
    ----------
    name : str
        Unique in the graph.
    definition : Definition
        The graph it belongs to.
    location : tuple of str and int
        File and line of the declaration.
    """

    __slots__ = ("definition", "location", "name")
    kind: ClassVar[str] = "node"

    def __init__(self, name: str, definition: Definition, location: Location) -> None:
        self.name = name
        self.definition = definition
        self.location = location

    @property
    def scope(self) -> str:
        """Name of the scope that the node was declared in; empty at the top."""
        return self.name.rpartition("/")[0]

    def operands(self) -> tuple[Any, ...]:
        """Everything that the node works on: arrays, expressions and literals, in the order of its fields."""
        return ()

    def replaced(self: NodeType, **fields: Any) -> NodeType:
        """A copy of the node with other values for some of its fields; the node itself stays as it is."""
        kind = type(self)
        made = object.__new__(kind)
        for slots in (Node.__slots__, kind.__slots__):
            for slot in slots:
                setattr(made, slot, getattr(self, slot))
        for field, value in fields.items():
            setattr(made, field, value)
        return made

    def after(self, *others: NodeOrNodes) -> Node:
        """Order this node after ``others``, nodes or lists of nodes; gives this node."""
        self.definition.edge(others, self)
        return self

    def __rshift__(self, other: NodeOrNodes) -> Node | NodeList:
        return _connect(self, other)

    def __rrshift__(self, other: NodeOrNodes) -> Node:
        _connect(other, self)
        return self

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r}>"


NodeOrNodes = Node | Iterable["NodeOrNodes"]


class NodeList(list[Node]):
    """Nodes side by side in a chain of ``>>``."""

    def __rshift__(self, other: NodeOrNodes) -> Node | NodeList:
        return _connect(self, other)

    def __rrshift__(self, other: NodeOrNodes) -> NodeList:
        _connect(other, self)
        return self


def flatten(nodes: NodeOrNodes) -> list[Node]:
    """The nodes in a node, or in nested lists of nodes."""
    if isinstance(nodes, Node):
        return [nodes]
    if isinstance(nodes, (str, bytes)) or not isinstance(nodes, Iterable):
        raise DeclarationError(
            "an edge joins nodes, or lists of nodes",
            field="edge",
            value=f"{nodes!r} of type {type(nodes).__name__}",
            remedy="Pass what the node methods of the graph returned.",
        )
    return [node for item in nodes for node in flatten(item)]


def _connect(before: NodeOrNodes, after: NodeOrNodes) -> Node | NodeList:
    if isinstance(before, Node) and isinstance(after, Node):  # by far the most frequent
        before.definition.edge(before, after)
        return after
    befores, afters = NodeList(flatten(before)), NodeList(flatten(after))
    for source in befores:  # each with its own graph, so that what joins two graphs is left to the check
        source.definition.edge(source, afters)
    # An empty list in the middle of a chain is passed over: a >> [] >> b orders b after a.
    return after if isinstance(after, Node) else afters or befores


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
    """

    __slots__ = ("args", "attributes", "block", "grid", "kernel", "shared_bytes", "signature")
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
    ) -> None:
        super().__init__(name, definition, location)
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.shared_bytes = shared_bytes
        self.args = args
        self.signature = signature
        self.attributes = attributes

    @property
    def window(self) -> Array | None:
        """The memory that an access policy of the node is about, if it has one."""
        policy = self.attributes and self.attributes.access_policy
        return policy.array if policy else None

    def operands(self) -> tuple[Any, ...]:
        operands = (*self.grid, *self.block, self.shared_bytes, *self.args)
        return operands if self.attributes is None or self.window is None else (*operands, self.window)


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

    def operands(self) -> tuple[Any, ...]:
        return (self.destination, self.source, self.size)


class MemsetNode(Node):
    """Every element of ``destination`` set to one value.

    Attributes
    ----------
    destination : Buffer or View
        What is set; contiguous.
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

    def operands(self) -> tuple[Any, ...]:
        return (self.destination, self.value)


class HostNode(Node):
    """A Python function called on the host, in a thread of the driver.

    Attributes
    ----------
    function : callable
        Called with ``args``; it may make no CUDA calls.
    args : tuple
        Host buffers and views arrive as NumPy arrays, params and expressions as numbers, all else as it is.
    """

    __slots__ = ("args", "function")
    kind = "host"

    def __init__(
        self,
        name: str,
        definition: Definition,
        location: Location,
        function: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        super().__init__(name, definition, location)
        self.function = function
        self.args = args

    def operands(self) -> tuple[Any, ...]:
        return self.args


class EmptyNode(Node):
    """Does nothing: a barrier that turns n times m edges into n plus m."""

    __slots__ = ()
    kind = "empty"


def named_operands(node: Node) -> Iterator[tuple[str, Any]]:
    """The buffers and params that a node refers to, also through views, expressions and tuples, by name."""
    yield from _named(node.operands())


def _named(operand: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(operand, tuple):
        for item in operand:
            yield from _named(item)
    elif isinstance(operand, Array):
        yield operand.buffer.name, operand.buffer
    if isinstance(operand, (Array, Expr)):
        for param in operand.params:
            yield param.name, param
