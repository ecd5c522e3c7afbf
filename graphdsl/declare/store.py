"""Where nodes and edges are kept: one `networkx.DiGraph` for each level of a graph.

A graph has one level of its own, and one for each body of a child or conditional node in it. Levels share operands
and the names of nodes. Several threads may declare into one graph: each declaration is recorded whole, and ``with``
blocks are those of the thread that is inside of them. Recording is lenient where a check can name the defect better and
together with others (cycles, duplicate edges, nodes of other levels). This module must not know kinds of nodes.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from threading import get_ident
from types import CodeType
from typing import Any, Literal, TypeVar

import networkx as nx

from graphdsl.declare.given import checked_name, checked_ordinal
from graphdsl.declare.independent import Independent, checked_independent
from graphdsl.declare.node import Node, NodeOrNodes, Port, flatten
from graphdsl.errors import DeclarationError, GraphdslError, Location

_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"

NodeType = TypeVar("NodeType", bound=Node)


class Level:
    """Nodes and edges of a graph, or of a body in it.

    Attributes
    ----------
    name : str
        What drawings and messages call it.
    dag : networkx.DiGraph
        The nodes and edges, to be read: only the methods of the graph add to it. Keys are node names; a node has the
        attribute ``node``, an edge the attributes ``locations`` (where it was declared, once for each time) and
        ``port`` (a `Port`). Edges to nodes of other levels, which are errors, are kept in the attribute ``foreign``
        of the node of this level.
    root : Level
        The graph that holds this body; the graph itself, if it is one.
    placed : bool
        Of a graph, True if anything in it may be on a device with a number; most graphs have none.
    memo : dict
        Of a graph, what other stages worked out in terms of its params: it goes with the graph.
    """

    def __init__(
        self,
        name: str,
        root: Level | None = None,
        prefix: str = "",
        tags: frozenset[str] = frozenset(),
        device: int | None = None,
    ) -> None:
        self.name = name
        self._dag: nx.DiGraph[str] = nx.DiGraph()
        self.dag: nx.DiGraph[str] = self._dag.copy(as_view=True)
        self.root = self if root is None else root
        self._prefix = prefix
        self._open = _Open(tags, device)
        if root is None:
            self._levels: list[Level] = [self]
            self._named: dict[str, Node] = {}  # the nodes of all levels
            self.placed = False
            self.memo: dict[Any, Any] = {}
            self._independents: list[Independent] = []
            self._claims: dict[str, int] = {}  # names that a thread is about to give to a node

    @property
    def levels(self) -> list[Level]:
        """The graph itself, and every body in it at any depth, in the order of declaration."""
        return list(self.root._levels)

    @property
    def what(self) -> str:
        """What it is."""
        return "graph" if self.root is self else "the body"

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.what} {self.name!r}"

    # Edges and grouping

    def edge(
        self,
        before: NodeOrNodes,
        after: NodeOrNodes,
        *,
        programmatic: bool = False,
        port: Literal["programmatic", "launch_order"] = "programmatic",
    ) -> None:
        """Order each node of ``after`` behind each node of ``before``; both may be lists.

        Parameters
        ----------
        before, after : node or list of nodes
            The ends.
        programmatic : bool
            Let a kernel of ``after`` start before the one of ``before`` has ended (programmatic dependent launch, from
            compute capability 9.0 on). What it does before `graphdsl.device.grid_dependency_wait` is not ordered.
        port : "programmatic" or "launch_order"
            When a programmatic edge lets it start: once every block of ``before`` has called
            `graphdsl.device.launch_dependents` or ended, or once every block has begun.

        Examples
        --------
        >>> from graphdsl.declare.definition import Definition
        >>> graph = Definition()
        >>> a, b, c, d = (graph.empty(name=name) for name in "abcd")
        >>> graph.edge([a, b], [c, d])
        >>> list(graph.dag.edges)
        [('a', 'c'), ('a', 'd'), ('b', 'c'), ('b', 'd')]
        """
        location = declared_here()
        kind = _checked_port(programmatic, port) if programmatic or port != "programmatic" else "default"
        if isinstance(before, Node) and isinstance(after, Node) and before.definition is after.definition is self:
            self._add_edge(before, after, location, kind)  # by far the most frequent
            return
        befores, afters = flatten(before), flatten(after)
        for source in befores:
            for target in afters:
                if source.definition is not self and target.definition is not self:
                    raise DeclarationError(
                        f"an edge of {self.title} joins nodes of it",
                        node=source.name,
                        field="edge",
                        value=f"{source.name} >> {target.name}",
                        remedy="Call edge on the graph or the body that the nodes belong to.",
                    )
        for source in befores:
            for target in afters:
                self._add_edge(source, target, location, kind)

    def _add_edge(self, source: Node, target: Node, location: Location, port: Port = "default") -> None:
        if source.definition is self and target.definition is self:
            edge = self._dag.get_edge_data(source.name, target.name)
            if edge is None:
                self._dag.add_edge(source.name, target.name, locations=(location,), port=port)
            else:
                edge["locations"] += (location,)
            return
        # Kept on both ends: whichever graph is checked, the edge is missing there.
        for end in (source, target):
            end.definition._dag.nodes[end.name].setdefault("foreign", []).append((source, target, location))

    def independent(self, one: NodeOrNodes, other: NodeOrNodes, *, why: str) -> None:
        """Say that nodes may run in any order, or at once, though they touch the same memory.

        A check then reports no conflict between them, and lists the reason (GD604).

        Parameters
        ----------
        one, other : node or list of nodes
            Each of ``one`` with each of ``other``; the same list twice says it of all of its pairs. A node that holds
            others stands for all of these.
        why : str
            The reason, for whoever reads the report.

        Raises
        ------
        DeclarationError
            If there is no reason, or a node belongs to another graph.

        Examples
        --------
        >>> from graphdsl.declare.definition import Definition
        >>> graph = Definition()
        >>> x = graph.device_array("x", 4, "f4")
        >>> a, b = graph.memset(x, 0, name="a"), graph.memset(x, 0, name="b")
        >>> graph.independent(a, b, why="both write the same")
        """
        self.root._independents.append(checked_independent(self, one, other, why, declared_here()))

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Prefix the names of what is declared inside with ``name/``; drawings show a cluster.

        Examples
        --------
        >>> from graphdsl.declare.definition import Definition
        >>> graph = Definition()
        >>> with graph.scope("layer0"):
        ...     graph.empty(name="start").name
        'layer0/start'
        """
        checked_name(name, "a scope")
        return _Block(lambda: self._open.scopes.append(name), lambda: self._open.scopes.pop())

    def tagged(self, *tags: str) -> AbstractContextManager[None]:
        """Give the nodes declared inside these tags, by which an exec enables and disables them.

        Nodes inside of a child or conditional node have its tags, too.

        Examples
        --------
        >>> from graphdsl.declare.definition import Definition
        >>> graph = Definition()
        >>> with graph.tagged("debug"):
        ...     sorted(graph.empty(name="dump").tags)
        ['debug']
        """
        added = frozenset(checked_name(tag, "a tag") for tag in tags)
        return _Block(lambda: self._open.tags.append(self.tags | added), lambda: self._open.tags.pop())

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the nodes that are declared now."""
        return self._open.tags[-1]

    def on(self, device: Any) -> AbstractContextManager[None]:
        """Let the nodes declared inside run on a device of the computer, and device arrays and events be there.

        What is declared outside is on the device that the graph is instantiated on. Nodes inside of a child or
        conditional node are where it is, but for those that are put elsewhere by a block of their own.

        Parameters
        ----------
        device : int or object
            Number of the device, or a device such as ``graphdsl.cuda(1)``, of which the number is kept and nothing
            else.

        Examples
        --------
        >>> from graphdsl.declare.definition import Definition
        >>> graph = Definition()
        >>> with graph.on(1):
        ...     graph.device_array("y", 16, "f4").device
        1
        """
        ordinal = checked_ordinal(device)
        self.root.placed = True
        return _Block(lambda: self._open.devices.append(ordinal), lambda: self._open.devices.pop())

    @property
    def device(self) -> int | None:
        """Number of the device that what is declared now is on; None for that which the graph is instantiated on."""
        return self._open.devices[-1]

    def sequence(self) -> AbstractContextManager[None]:
        """Chain the nodes declared inside, each after the one before; sequences inside continue the chain."""
        return _Block(self._begin_sequence, self._end_sequence)

    def _begin_sequence(self) -> None:
        sequences = self._open.sequences
        sequences.append(sequences[-1] if sequences else None)

    def _end_sequence(self) -> None:
        sequences = self._open.sequences
        last = sequences.pop()
        if sequences:
            sequences[-1] = last

    # Looking things up

    @property
    def independents(self) -> tuple[Independent, ...]:
        """What `independent` was told, of all levels."""
        return tuple(self.root._independents)

    @property
    def nodes(self) -> list[Node]:
        """The nodes of this level, in the order of declaration."""
        return [data["node"] for _, data in self.dag.nodes.data()]

    @property
    def all_nodes(self) -> list[Node]:
        """The nodes of this level, and those of the bodies of its nodes, at any depth."""
        found = self.nodes
        for node in found[:]:
            for body in node.bodies:
                found += body.all_nodes
        return found

    def node(self, name: str) -> Node:
        """The node of that name, here or in a body.

        Raises
        ------
        DeclarationError
            If there is none; close names are suggested.
        """
        if name not in self.root._named:
            raise unknown_name(name, self.root._named, "node")
        return self.root._named[name]

    def to_networkx(self) -> nx.DiGraph[str]:
        """A copy of the DAG of this level for networkx: keys are node names.

        Returns
        -------
        networkx.DiGraph
            Nodes have the attributes ``kind``, ``scope``, ``tags`` and ``node``, edges ``port``, the graph ``name``.
        """
        copy: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        for name, data in self.dag.nodes.data():
            node = data["node"]
            copy.add_node(name, kind=node.kind, scope=node.scope, tags=node.tags, node=node)
        copy.add_edges_from((source, target, {"port": port}) for source, target, port in self.dag.edges.data("port"))
        return copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Level:
        # One level after the other: by way of nodes and their bodies Python would go as deep as they nest, and fail.
        levels = self.root._levels
        made = [object.__new__(type(level)) for level in levels]
        memo.update((id(level), copy) for level, copy in zip(levels, made, strict=True))
        for level, copy in zip(levels, made, strict=True):
            vars(copy).update(deepcopy(vars(level), memo))
        return memo[id(self)]  # type: ignore[no-any-return]

    def __copy__(self) -> Level:
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

    def _full_prefix(self) -> str:
        """What the body and the open scopes put before a name."""
        scopes = self._open.scopes
        return self._prefix + "".join(f"{scope}/" for scope in scopes) if scopes else self._prefix

    def _taken(self, full: str) -> bool:
        """True if a node of this level or of another one has the name."""
        return full in self.root._named

    def _node_name(self, name: str | None, fallback: str) -> str:
        prefix = self._full_prefix()
        if name is not None:
            full = prefix + checked_name(name, "a node")
            if self._taken(full):
                raise self._taken_error(full)
            return full
        full = prefix + fallback
        if self._claimed(full):
            return full
        # Where the last free number was is kept, so that a thousand nodes of one kernel take linear time.
        numbers = self._dag.graph.setdefault("numbers", {})
        for number in itertools.count(numbers.get(full, 1)):
            if self._claimed(f"{full}_{number}"):
                numbers[full] = number + 1
                return f"{full}_{number}"
        raise AssertionError("unreachable: count never ends")

    def _claimed(self, full: str) -> bool:
        """True if this thread may give the name to a node: none has it, and no other thread is about to give it to one.

        A claim ends when the node is added. That of a declaration that failed stays, and is this thread's to use.
        """
        claims, me = self.root._claims, get_ident()
        if claims.setdefault(full, me) != me:  # one step, that no other thread comes between
            return False
        if self._taken(full):
            del claims[full]
            return False
        return True

    def _taken_error(self, full: str) -> DeclarationError:
        return DeclarationError(
            f"graph {self.root.name!r} already has a node of this name",
            node=full,
            field="name",
            remedy="Choose another name, or leave it out and one is made.",
            location=self.node(full).location if self._taken(full) else None,
        )

    def _add(self, node: NodeType, after: NodeOrNodes) -> NodeType:
        befores = self._ordered_after(after, node.name)
        claims = self.root._claims
        if claims.get(node.name) != get_ident() and not self._claimed(node.name):  # a name that was made is claimed
            raise self._taken_error(node.name)
        self._put(node)
        del claims[node.name]
        sequences = self._open.sequences
        if sequences:
            if sequences[-1] is not None and sequences[-1] not in befores:
                befores.insert(0, sequences[-1])
            sequences[-1] = node
        for before in befores:
            self._add_edge(before, node, node.location)
        return node

    def _ordered_after(self, after: NodeOrNodes, name: str | None) -> list[Node]:
        """The nodes that a new one of that name is ordered after; asked before anything of it is kept."""
        return flatten(after, name, "after") if after else []

    def _put(self, node: Node) -> None:
        """Keep a node, and the bodies that it holds, which are levels of the graph from now on."""
        self._dag.add_node(node.name, node=node)
        self.root._named[node.name] = node
        self.root._levels += node.bodies


class _Open(threading.local):
    """The ``with`` blocks of a level that a thread is inside of; each thread begins with none."""

    def __init__(self, tags: frozenset[str], device: int | None) -> None:
        self.scopes: list[str] = []
        self.sequences: list[Node | None] = []
        self.tags = [tags]
        self.devices = [device]

    def __reduce__(self) -> tuple[Any, ...]:
        return _Open, (self.tags[0], self.devices[0])  # a copy is inside of none


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
    name: Any,
    known: Iterable[str],
    what: str,
    error: type[GraphdslError] = DeclarationError,
    *,
    node: str | None = None,
    field: str = "name",
) -> GraphdslError:
    """The error for a name that is not there, with close ones as the remedy."""
    import difflib

    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=3) or names[:5]
    remedy = f"Names close to it: {', '.join(close)}." if close else f"There is no {what} at all."
    return error(f"there is no {what} of this name", node=node, field=field, value=repr(name), remedy=remedy)


def declared_here() -> Location:
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


def _checked_port(programmatic: Any, port: Any) -> Port:
    if port not in ("programmatic", "launch_order"):
        raise DeclarationError(
            "the port of a programmatic edge is 'programmatic' or 'launch_order'",
            field="port",
            value=repr(port),
            remedy="Leave it out for 'programmatic'.",
        )
    if programmatic:
        return port  # type: ignore[no-any-return]
    if port == "launch_order":
        raise DeclarationError(
            "only a programmatic edge has a port",
            field="port",
            value=repr(port),
            remedy="Pass programmatic=True, or leave the port out for a full dependency.",
        )
    return "default"


_MOST_PLACES = 10_000
_NOWHERE: tuple[CodeType | None, Location] = (None, ("", 0))
_places: dict[tuple[int, int], tuple[CodeType | None, Location]] = {}
