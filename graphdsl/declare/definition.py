"""The definition of a graph: nodes and edges in one `networkx.DiGraph`, and the operands by name.

Recording is lenient where a check can name the defect better and together with others (cycles, duplicate edges,
nodes of other graphs), and strict where nothing sensible could be recorded (a name taken twice, a kernel that is
none). This module must not judge, plan or run anything.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

import networkx as nx

from graphdsl.declare.attributes import launch_attributes
from graphdsl.declare.expressions import Param
from graphdsl.declare.given import (
    arguments,
    checked_dtype,
    checked_function,
    checked_name,
    checked_shape,
    dim3,
    extent,
    require_array,
)
from graphdsl.declare.interop import foreign_array
from graphdsl.declare.kernel import as_kernel, name_of
from graphdsl.declare.nodes import (
    EmptyNode,
    HostNode,
    KernelNode,
    MemcpyNode,
    MemsetNode,
    Node,
    NodeOrNodes,
    flatten,
)
from graphdsl.declare.operands import Array, Buffer, Extent, Space
from graphdsl.errors import DeclarationError, GraphdslError, Location

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from graphdsl.declare.attributes import GivenAttributes

_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"

NodeType = TypeVar("NodeType", bound=Node)


class Definition:
    """Nodes, edges and operands of a graph. Users make a `Graph`, which adds what can be done with one.

    Attributes
    ----------
    name : str
        What drawings and messages call the graph.
    dag : networkx.DiGraph
        The nodes and edges, to be read: only the methods of the graph add to it. Keys are node names; a node has the
        attribute ``node``, an edge the attribute ``locations`` (where it was declared, once for each time). Edges to
        nodes of other graphs, which are errors, are kept in the attribute ``foreign`` of the node of this graph.
    operands : dict
        `Buffer` and `Param` objects by name, in the order of declaration.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = checked_name(name, "a graph")
        self._dag: nx.DiGraph[str] = nx.DiGraph()
        self.dag: nx.DiGraph[str] = self._dag.copy(as_view=True)
        self.operands: dict[str, Buffer | Param] = {}
        self._scopes: list[str] = []
        self._sequences: list[Node | None] = []

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
        made = Param(full, checked_dtype(dtype, full, scalar=True), default, self, _location())
        self.operands[full] = made
        return made

    def device_array(self, name: str, shape: int | tuple[int, ...], dtype: Any) -> Buffer:
        """Declare an array in device memory; every exec owns its own.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        shape : int or tuple of int
            Extents in elements; the array is C contiguous.
        dtype : dtype
            Type of an element; structured dtypes are allowed.
        """
        return self._buffer(name, shape, dtype, "device")

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

    def _buffer(self, name: str, shape: Any, dtype: Any, space: Space) -> Buffer:
        full = self._operand_name(name)
        made = Buffer(full, checked_shape(shape, full), checked_dtype(dtype, full), space, self, location=_location())
        self.operands[full] = made
        return made

    def external(self, name: str, owner: Any) -> Buffer:
        """Adopt memory that somebody else owns; it is kept alive, and can be re-bound by an update.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        owner : object
            A NumPy array or an object with the buffer protocol (host memory), or an object with
            ``__cuda_array_interface__`` or ``__dlpack__`` (device memory, or pinned memory where DLPack says so).

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
            self,
            strides=found.strides,
            owner=owner,
            keep=found.keep,
            readonly=found.readonly,
            location=_location(),
        )
        self.operands[full] = made
        return made

    # Nodes

    def kernel(
        self,
        kernel: Any,
        *,
        grid: Any,
        block: Any,
        args: Iterable[Any] = (),
        shared_bytes: Extent = 0,
        signature: Any = None,
        name: str | None = None,
        after: NodeOrNodes = (),
        **attributes: Unpack[GivenAttributes],
    ) -> KernelNode:
        """Declare a kernel launch.

        Parameters
        ----------
        kernel : callable
            A function decorated with ``numba.cuda.jit``, or a plain Python function.
        grid, block : int, Expr, or tuple of up to three of them
            Blocks in the grid and threads in a block, x first.
        args : iterable
            One operand for each parameter: `Buffer`, `View`, `Param`, `Expr`, number, bool, or a tuple of these. A
            single one may stand by itself, and a dict gives all of them by the names of the parameters.
        shared_bytes : int or Expr
            Dynamic shared memory of a block.
        signature : str or Numba signature, optional
            Types to compile for, such as ``"void(float32[:], int32)"``; by default they follow the operands.
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
        full = self._node_name(name, made.name.strip("<>"))
        node = KernelNode(
            full,
            self,
            _location(),
            made,
            dim3(grid, full, "grid"),
            dim3(block, full, "block"),
            extent(shared_bytes, full, "shared_bytes"),
            arguments(args, full, made),
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
            Contiguous arrays in device, pinned or pageable memory. Without ``nbytes`` they agree in shape and dtype.
        nbytes : int or Expr, optional
            Bytes to copy from the start of both, whatever their dtypes.
        name, after
            As for `kernel`; the default name tells source and destination.
        """
        require_array(destination, name, "destination")
        require_array(source, name, "source")
        full = self._node_name(name, f"{_last(source)}_to_{_last(destination)}")
        size = None if nbytes is None else extent(nbytes, full, "nbytes")
        return self._add(MemcpyNode(full, self, _location(), destination, source, size), after)

    def memset(self, destination: Array, value: Any, *, name: str | None = None, after: NodeOrNodes = ()) -> MemsetNode:
        """Declare that every element of ``destination`` is set to ``value``.

        Parameters
        ----------
        destination : Buffer or View
            Contiguous array in device or pinned memory.
        value : number or Expr
            A value of its dtype. The driver repeats 1, 2 or 4 bytes, so an 8- or 16-byte element takes only values
            whose bytes repeat so, such as 0.
        name, after
            As for `kernel`.
        """
        require_array(destination, name, "destination")
        full = self._node_name(name, f"set_{_last(destination)}")
        return self._add(MemsetNode(full, self, _location(), destination, value), after)

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
        return self._add(HostNode(full, self, _location(), function, arguments(args, full)), after)

    def empty(self, *, name: str | None = None, after: NodeOrNodes = ()) -> EmptyNode:
        """Declare a node that does nothing: a barrier."""
        return self._add(EmptyNode(self._node_name(name, "empty"), self, _location()), after)

    # Edges and grouping

    def edge(self, before: NodeOrNodes, after: NodeOrNodes) -> None:
        """Order each node of ``after`` behind each node of ``before``; both may be lists.

        Examples
        --------
        >>> graph = Definition()
        >>> a, b, c, d = (graph.empty(name=name) for name in "abcd")
        >>> graph.edge([a, b], [c, d])
        >>> list(graph.dag.edges)
        [('a', 'c'), ('a', 'd'), ('b', 'c'), ('b', 'd')]
        """
        location = _location()
        befores, afters = flatten(before), flatten(after)
        for source in befores:
            for target in afters:
                if source.definition is not self and target.definition is not self:
                    raise DeclarationError(
                        f"an edge of graph {self.name!r} joins nodes of that graph",
                        node=source.name,
                        field="edge",
                        value=f"{source.name} >> {target.name}",
                        remedy="Call edge on the graph that the nodes belong to.",
                    )
        for source in befores:
            for target in afters:
                self._add_edge(source, target, location)

    def _add_edge(self, source: Node, target: Node, location: Location) -> None:
        if source.definition is self and target.definition is self:
            edge = self._dag.get_edge_data(source.name, target.name)
            if edge is None:
                self._dag.add_edge(source.name, target.name, locations=(location,))
            else:
                edge["locations"] += (location,)
            return
        # Kept on both ends: whichever graph is checked, the edge is missing there.
        for end in (source, target):
            end.definition._dag.nodes[end.name].setdefault("foreign", []).append((source, target, location))

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Prefix the names of what is declared inside with ``name/``; drawings show a cluster.

        Examples
        --------
        >>> graph = Definition()
        >>> with graph.scope("layer0"):
        ...     graph.empty(name="start").name
        'layer0/start'
        """
        return _Block(partial(self._scopes.append, checked_name(name, "a scope")), self._scopes.pop)

    def sequence(self) -> AbstractContextManager[None]:
        """Chain the nodes declared inside, each after the one before; sequences inside continue the chain."""
        return _Block(self._begin_sequence, self._end_sequence)

    def _begin_sequence(self) -> None:
        self._sequences.append(self._sequences[-1] if self._sequences else None)

    def _end_sequence(self) -> None:
        last = self._sequences.pop()
        if self._sequences:
            self._sequences[-1] = last

    # Looking things up

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in the order of declaration."""
        return [data["node"] for _, data in self.dag.nodes.data()]

    def node(self, name: str) -> Node:
        """The node of that name.

        Raises
        ------
        DeclarationError
            If there is none; close names are suggested.
        """
        try:
            return self.dag.nodes[name]["node"]  # type: ignore[no-any-return]
        except KeyError:
            raise unknown_name(name, self.dag, "node") from None

    def to_networkx(self) -> nx.DiGraph[str]:
        """A copy of the DAG for networkx: keys are node names.

        Returns
        -------
        networkx.DiGraph
            Nodes have the attributes ``kind``, ``scope`` and ``node``; the graph has ``name``.
        """
        copy: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        for name, data in self.dag.nodes.data():
            node = data["node"]
            copy.add_node(name, kind=node.kind, scope=node.scope, node=node)
        copy.add_edges_from(self.dag.edges)
        return copy

    def __copy__(self) -> Definition:
        raise DeclarationError(
            "a graph is copied whole, or its copy would share nodes and operands with it",
            value=repr(self),
            remedy="Use copy.deepcopy, or declare it in a function that makes a new graph at each call.",
        )

    def __len__(self) -> int:
        return len(self.dag)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {len(self.dag)} nodes, {self.dag.number_of_edges()} edges>"

    # Names

    def _operand_name(self, name: str) -> str:
        full = "/".join([*self._scopes, checked_name(name, "an operand")])
        if full in self.operands:
            raise DeclarationError(
                f"graph {self.name!r} already has an operand of this name",
                field="name",
                value=repr(full),
                remedy="Choose another name, or make a new Graph.",
                location=self.operands[full].location,
            )
        return full

    def _node_name(self, name: str | None, fallback: str) -> str:
        prefix = "".join(f"{scope}/" for scope in self._scopes) if self._scopes else ""
        if name is not None:
            full = prefix + checked_name(name, "a node")
            if full in self._dag:
                raise DeclarationError(
                    f"graph {self.name!r} already has a node of this name",
                    node=full,
                    field="name",
                    remedy="Choose another name, or leave it out and one is made.",
                    location=self._dag.nodes[full]["node"].location,
                )
            return full
        full = prefix + fallback
        if full not in self._dag:
            return full
        # Where the last free number was is kept, so that a thousand nodes of one kernel take linear time.
        numbers = self._dag.graph.setdefault("numbers", {})
        for number in itertools.count(numbers.get(full, 1)):
            if f"{full}_{number}" not in self._dag:
                numbers[full] = number + 1
                return f"{full}_{number}"
        raise AssertionError("unreachable: count never ends")

    def _add(self, node: NodeType, after: NodeOrNodes) -> NodeType:
        befores = flatten(after) if after else []
        self._dag.add_node(node.name, node=node)
        if self._sequences:
            if self._sequences[-1] is not None and self._sequences[-1] not in befores:
                befores.insert(0, self._sequences[-1])
            self._sequences[-1] = node
        for before in befores:
            self._add_edge(before, node, node.location)
        return node


class _Block(AbstractContextManager[None]):
    """A ``with`` block of a graph, which may be entered again."""

    def __init__(self, begin: Callable[[], Any], end: Callable[[], Any]) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *_: object) -> None:
        self._end()


def unknown_name(
    name: Any, known: Iterable[str], what: str, error: type[GraphdslError] = DeclarationError
) -> GraphdslError:
    """The error for a name that is not there, with close ones as the remedy."""
    import difflib

    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=3) or names[:5]
    remedy = f"Names close to it: {', '.join(close)}." if close else f"There is no {what} at all."
    return error(f"there is no {what} of this name", field="name", value=repr(name), remedy=remedy)


def _location() -> Location:
    """File and line of the first frame outside the package: where the user declared it."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    # Loops declare thousands of nodes at one place: they share one tuple, which also spares the garbage collector.
    code = frame.f_code
    place = (id(code), frame.f_lasti)
    known, found = _places.get(place, _NOWHERE)
    if known is not code:  # code objects of different places can be equal, and are slow to compare
        if len(_places) >= _MOST_PLACES:
            _places.clear()
        found = (code.co_filename, frame.f_lineno)
        _places[place] = (code, found)
    return found


_MOST_PLACES = 10_000
_NOWHERE: tuple[CodeType | None, Location] = (None, ("", 0))
_places: dict[tuple[int, int], tuple[CodeType | None, Location]] = {}


def _last(array: Array) -> str:
    return array.buffer.name.rpartition("/")[2]
