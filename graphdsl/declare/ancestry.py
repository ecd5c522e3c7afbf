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
    """

    owner: int
    nodes: Sequence[int]
    edges: Iterable[tuple[int, int]]
    programmatic: Collection[tuple[int, int]] = ()


def insides(definition: Definition, nodes: Sequence[Node]) -> list[Inside]:
    """The levels of a definition, each as indices of ``nodes``, which are all of them.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> graph = Definition()
    >>> _ = graph.empty(name="a") >> graph.empty(name="b")
    >>> insides(graph, graph.all_nodes)
    [Inside(owner=-1, nodes=[0, 1], edges=[(0, 1)], programmatic=[])]
    """
    index = {node.name: number for number, node in enumerate(nodes)}
    owners = {id(body): index[node.name] for node in nodes for body in node.bodies}
    found = []
    for level in definition.levels:
        edges = [
            (index[source], index[target], port)
            for source, target, port in level.dag.edges.data("port")
            if port != "launch_order"
        ]
        found.append(
            Inside(
                owners.get(id(level), -1),
                [index[name] for name in level.dag],
                [(source, target) for source, target, _ in edges],
                [(source, target) for source, target, port in edges if port == "programmatic"],
            )
        )
    return found


def ends_of(count: int, levels: Iterable[Inside]) -> dict[int, int]:
    """The end of each node that holds bodies, as `flattened` numbers it."""
    owners = dict.fromkeys(level.owner for level in levels if level.owner >= 0)
    return {owner: count + number for number, owner in enumerate(owners)}


def flattened(count: int, levels: Iterable[Inside]) -> tuple[int, list[tuple[int, int]]]:
    """Levels as one graph: a node that holds bodies becomes its begin, and another one its end.

    Parameters
    ----------
    count : int
        How many nodes there are.
    levels : iterable of Inside
        How they hang together.

    Returns
    -------
    count : int
        The number of nodes, the ends counted.
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
    for owner, nodes, inner, _ in levels:
        inner = list(inner)
        edges += [(ends.get(source, source), target) for source, target in inner]
        if owner >= 0:
            sources, targets = {source for source, _ in inner}, {target for _, target in inner}
            edges += [(owner, node) for node in nodes if node not in targets]
            edges += [(ends.get(node, node), ends[owner]) for node in nodes if node not in sources]
    return count + len(ends), edges + list(ends.items())


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
    ready = [index for index, number in enumerate(waiting) if not number]
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
        for target in after[index]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)


def implied(count: int, edges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """The edges that other ways imply, which the transitive reduction of an acyclic graph leaves out.

    Parameters
    ----------
    count : int
        How many nodes there are.
    edges : iterable of pairs of int
        Source and target of each edge, each once. What lies on a cycle, or behind one, is not looked at.

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
    """
    edges = list(edges)
    before: list[list[int]] = [[] for _ in range(count)]
    outs = [0] * count
    for source, target in edges:
        before[target].append(source)
        outs[source] += 1
    # An edge can be spared only if its source has another one, and its target too.
    forks = (source for source in range(count) if outs[source] > 1)
    bits = {source: 1 << number for number, source in enumerate(forks)}
    left = [0] * count
    for source, target in edges:
        left[source] += len(before[target]) > 1
    reached: dict[int, int] = {}
    places: dict[int, int] = {}
    for index, found in ancestors(bits, count, edges):
        places[index] = len(places)
        if left[index]:
            reached[index] = found
        sources = before[index]
        if len(sources) < 2:
            continue
        sources.sort(key=places.__getitem__)  # the last has most before it
        asked = [source for source in sources if source in bits]
        for via in reversed(sources):
            if not asked or places[via] <= places[asked[0]]:
                break
            behind = reached[via]
            spared = [source for source in asked if behind & bits[source]]
            if spared:
                yield from ((source, index, via) for source in spared)
                asked = [source for source in asked if not behind & bits[source]]
        for source in sources:
            left[source] -= 1
            if not left[source]:
                del reached[source]
