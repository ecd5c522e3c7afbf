"""Which nodes are ordered after which: a graph and the bodies in it as one partial order.

Ancestors are sets of bits in Python's integers: one operation joins two sets of ten thousand nodes. They come one node
after the other, in a topological order, and are given back as soon as no edge needs them, because all of them together
grow with the square of the nodes. This module must not judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from graphdsl.declare.definition import Definition
    from graphdsl.declare.node import Node


class Inside(NamedTuple):
    """A graph, or a body in it.

    Attributes
    ----------
    owner : int
        Index of the node that holds the body; -1 for the graph itself.
    nodes : sequence of int
        Indices of its nodes.
    edges : iterable of pairs of int
        Source and target of each edge, as indices of nodes; of programmatic ones too, but for those that order starts
        alone.
    programmatic : collection of pairs of int
        Those of the edges that let their target start before their source has ended.
    starts : iterable of pairs of int
        Source and target of each edge that orders no more than starts: the target comes after what the source comes
        after.
    """

    owner: int
    nodes: Sequence[int]
    edges: Iterable[tuple[int, int]]
    programmatic: Collection[tuple[int, int]] = ()
    starts: Iterable[tuple[int, int]] = ()


def insides(definition: Definition, nodes: Sequence[Node], unwaited: Collection[tuple[str, str]] = ()) -> list[Inside]:
    """The levels of a definition, each as indices of ``nodes``, which are all of them.

    A programmatic edge orders its target, as far as that is behind the wait that its kernel has to call for; an edge of
    the port ``"launch_order"`` orders starts.

    Parameters
    ----------
    definition : Definition
        A graph.
    nodes : sequence of Node
        Its nodes, those of bodies too.
    unwaited : collection of pairs of str
        Programmatic edges, by the names of their nodes, whose target is known to call for no wait.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> _ = graph.empty(name="a") >> graph.empty(name="b")
    >>> insides(graph, graph.all_nodes)
    [Inside(owner=-1, nodes=[0, 1], edges=[(0, 1)], programmatic=[], starts=[])]
    """
    index = {node.name: number for number, node in enumerate(nodes)}
    owners = {id(body): index[node.name] for node in nodes for body in node.bodies}
    found = []
    for level in definition.levels:
        edges = [(index[source], index[target]) for source, target in level.dag.edges]
        ports = [port for *_, port in level.dag.edges.data("port")]
        programmatic: list[tuple[int, int]] = []
        starts: list[tuple[int, int]] = []
        if ports.count("default") < len(ports):
            kinds: dict[str, list[tuple[int, int]]] = {"default": [], "programmatic": [], "launch_order": []}
            for port, edge in zip(ports, edges, strict=True):
                names = nodes[edge[0]].name, nodes[edge[1]].name
                kinds["launch_order" if names in unwaited else port].append(edge)
            programmatic, starts = kinds["programmatic"], kinds["launch_order"]
            late = set(starts)
            edges = [edge for edge in edges if edge not in late]
        owner = owners.get(id(level), -1)
        found.append(Inside(owner, [index[name] for name in level.dag], edges, programmatic, starts))
    return found


def ends_of(count: int, levels: Iterable[Inside]) -> dict[int, int]:
    """The end of each node that holds bodies, as `flattened` numbers it."""
    owners = dict.fromkeys(level.owner for level in levels if level.owner >= 0)
    return {owner: count + number for number, owner in enumerate(owners)}


def flattened(count: int, levels: Iterable[Inside]) -> tuple[int, list[tuple[int, int]]]:
    """Levels as one graph: a node that holds bodies becomes its begin, and another one its end.

    One whose start orders others has a begin of its own, too.

    Parameters
    ----------
    count : int
        How many nodes there are.
    levels : iterable of Inside
        How they hang together.

    Returns
    -------
    count : int
        The number of nodes, ends and begins counted.
    edges : list of pairs of int
        Source and target of each edge.

    Examples
    --------
    >>> flattened(3, [Inside(-1, [0, 1], [(0, 1)]), Inside(0, [2], [])])
    (4, [(3, 1), (0, 2), (2, 3), (0, 3)])
    """
    levels = list(levels)
    ends = ends_of(count, levels)
    edges = []
    begins: dict[int, int] = {}  # of the nodes whose start alone orders others
    for owner, nodes, inner, _, starts in levels:
        inner = list(inner)
        edges += [(ends.get(source, source), target) for source, target in inner]
        for source, target in starts:
            if source not in begins:
                begins[source] = count + len(ends) + len(begins)
                edges.append((begins[source], source))
            edges.append((begins[source], target))
        if owner >= 0:
            sources, targets = {source for source, _ in inner}, {target for _, target in inner}
            edges += [(owner, node) for node in nodes if node not in targets]
            edges += [(ends.get(node, node), ends[owner]) for node in nodes if node not in sources]
    if begins:  # what orders such a node orders its start, if it is not a programmatic edge
        kept = {(begin, node) for node, begin in begins.items()}.union(*(level.programmatic for level in levels))
        edges = [edge if edge in kept else (edge[0], begins.get(edge[1], edge[1])) for edge in edges]
    return count + len(ends) + len(begins), edges + list(ends.items())


def starts_apart(
    count: int, edges: Iterable[tuple[int, int]], programmatic: Iterable[tuple[int, int]]
) -> tuple[int, list[tuple[int, int]], dict[int, int]]:
    """The same order with the start of each node apart from its end, where programmatic edges let nodes overlap.

    The target of such an edge starts when its source may still run, and ends behind it. So what has ended before a
    node starts is what comes before its start, and what has ended before it ends comes before the node itself.

    Parameters
    ----------
    count, edges
        As `flattened` gives them.
    programmatic : iterable of pairs of int
        Those among the edges.

    Returns
    -------
    count : int
        The number of nodes, the starts counted.
    edges : list of pairs of int
        Source and target of each edge.
    starts : dict of int to int
        The start of each node that has one of its own.

    Examples
    --------
    >>> starts_apart(2, [(0, 1)], [(0, 1)])
    (4, [(2, 3), (0, 1), (2, 0), (3, 1)], {0: 2, 1: 3})
    """
    apart = set(programmatic)
    starts = {node: count + number for number, node in enumerate(dict.fromkeys(end for edge in apart for end in edge))}
    found = []
    for source, target in edges:
        if (source, target) in apart:
            found.append((starts[source], starts[target]))
            found.append((source, target))
        else:
            found.append((source, starts.get(target, target)))
    return count + len(starts), [*found, *((start, node) for node, start in starts.items())], starts


def ancestors(bits: Mapping[int, int], count: int, edges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The nodes in a topological order, each with the bits of those that it is ordered after.

    Parameters
    ----------
    bits : mapping of int to int
        The bit of each node that is asked about, by its index.
    count : int
        How many nodes there are.
    edges : iterable of pairs of int
        Source and target of each edge. What lies on a cycle, or behind one, does not come.

    Yields
    ------
    index : int
        Of a node.
    before : int
        The bits of the nodes before it.

    Examples
    --------
    >>> list(ancestors({0: 1, 1: 2, 2: 4}, 3, [(0, 1), (1, 2)]))
    [(0, 0), (1, 1), (2, 3)]
    """
    after: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        after[source].append(target)
        before[target].append(source)
    waiting, left = [len(sources) for sources in before], [len(targets) for targets in after]
    ready = [index for index in range(count - 1, -1, -1) if not waiting[index]]  # the first comes first
    reached: dict[int, int] = {}
    while ready:
        index = ready.pop()
        found = 0
        for source in before[index]:
            found |= reached[source]
            left[source] -= 1
            if not left[source]:  # sets of many nodes are large: only the front of them is kept
                del reached[source]
        yield index, found
        if left[index]:
            reached[index] = found | bits.get(index, 0)
        for target in reversed(after[index]):
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)


def implied(
    count: int, edges: Iterable[tuple[int, int]], asked: Collection[tuple[int, int]] | None = None
) -> Iterator[tuple[int, int, int]]:
    """The edges that other ways imply, which the transitive reduction of an acyclic graph leaves out.

    Parameters
    ----------
    count : int
        How many nodes there are.
    edges : iterable of pairs of int
        Source and target of each edge, each once. What lies on a cycle, or behind one, is not looked at.
    asked : collection of pairs of int, optional
        The edges asked about; all by default.

    Yields
    ------
    source, target : int
        Ends of an edge.
    via : int
        The last node before the target on another way from the source to it.

    Examples
    --------
    >>> list(implied(3, [(0, 1), (1, 2), (0, 2)]))
    [(0, 2, 1)]
    >>> list(implied(3, [(0, 1), (1, 2), (0, 2)], asked=[(0, 1)]))
    []
    """
    edges = list(edges)
    wanted = edges if asked is None else asked
    doubtful: dict[int, set[int]] = {}
    for source, target in wanted:
        doubtful.setdefault(target, set()).add(source)
    before: list[list[int]] = [[] for _ in range(count)]
    outs = [0] * count
    for source, target in edges:
        before[target].append(source)
        outs[source] += 1
    # An edge can be spared only if its source has another one, and its target too.
    forks = (source for source in dict.fromkeys(source for source, _ in wanted) if outs[source] > 1)
    bits = {source: 1 << number for number, source in enumerate(forks)}
    left = [0] * count
    for source, target in edges:
        left[source] += target in doubtful and len(before[target]) > 1
    reached: dict[int, int] = {}
    places: dict[int, int] = {}
    for index, found in ancestors(bits, count, edges):
        places[index] = len(places)
        if left[index]:
            reached[index] = found
        sources = before[index]
        if len(sources) < 2 or index not in doubtful:
            continue
        sources.sort(key=places.__getitem__)  # the last has most before it
        open_ = [source for source in sources if source in bits and source in doubtful[index]]
        for via in reversed(sources):
            if not open_ or places[via] <= places[open_[0]]:
                break
            behind = reached[via]
            spared = [source for source in open_ if behind & bits[source]]
            if spared:
                yield from ((source, index, via) for source in spared)
                open_ = [source for source in open_ if not behind & bits[source]]
        for source in sources:
            left[source] -= 1
            if not left[source]:
                del reached[source]


def program_order(count: int, levels: Iterable[Inside]) -> list[int]:
    """The nodes as a program would run them one by one: in the order of declaration, as far as edges let it.

    What an edge puts before a node that was declared earlier comes right before that node. What a node holds follows
    it, before the next node of its level.

    Parameters
    ----------
    count : int
        How many nodes there are.
    levels : iterable of Inside
        How they hang together; the nodes of each in the order of declaration.

    Returns
    -------
    list of int
        Indices of nodes; those on a cycle, and behind one, are left out.

    Examples
    --------
    >>> program_order(4, [Inside(-1, [0, 1, 2], [(2, 0)]), Inside(1, [3], [])])
    [2, 0, 1, 3]
    """
    inner: dict[int, list[int]] = {}
    for owner, nodes, edges, _, starts in levels:
        inner.setdefault(owner, []).extend(_forward(nodes, [*edges, *starts]))
    order: list[int] = []
    pending = list(reversed(inner.get(-1, [])))
    while pending:
        index = pending.pop()
        order.append(index)
        pending += reversed(inner.get(index, ()))
    return order


def _forward(nodes: Sequence[int], edges: list[tuple[int, int]]) -> Sequence[int]:
    """The nodes of a level in a topological order: as they are declared, each behind what has to come before it."""
    place = {node: number for number, node in enumerate(nodes)}
    if all(place[source] < place[target] for source, target in edges):
        return nodes
    before: dict[int, list[int]] = {node: [] for node in nodes}
    for source, target in sorted(edges, key=lambda edge: place[edge[0]], reverse=True):
        before[target].append(source)
    found: dict[int, None] = {}
    entered: set[int] = set()
    for node in nodes:
        pending = [node]
        while pending:
            index = pending[-1]
            missing = [] if index in entered else [source for source in before[index] if source not in found]
            entered.add(index)
            if missing:
                pending += missing
                continue
            pending.pop()
            if all(source in found for source in before[index]):  # not on a cycle, nor behind one
                found[index] = None
    return list(found)
