"""The DAG as text for a terminal: its levels, a tree, and its operands, as renderables of rich.

A wrong graph is shown too, with its cycles named. This module must not judge a definition.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator

import networkx as nx
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from graphdsl.declare.definition import Definition
from graphdsl.declare.event import Event
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import named_operands
from graphdsl.declare.operand_level import Operand
from graphdsl.declare.operands import Buffer
from graphdsl.declare.store import Level
from graphdsl.draw.flows import rows
from graphdsl.draw.labels import bytes_text, count_text, described
from graphdsl.draw.memory import Planned
from graphdsl.draw.memory import summary as memory_summary

_COLOURS = {
    "kernel": "cyan",
    "memcpy": "yellow",
    "memset": "magenta",
    "host": "green",
    "captured": "green",
    "child": "blue",
    "conditional": "bright_yellow",
}
_NAMES_SHOWN = 6


def levels(definition: Definition) -> Group:
    """The nodes by level: a node waits only for nodes of earlier levels, and for one of the level just before.

    Returns
    -------
    rich.console.Group
        A table, and a line for each cycle; nodes of one cycle stand in one level. Bodies of nodes follow, each with a
        table of its own.

    Examples
    --------
    >>> from rich.console import Console
    >>> graph = Definition("demo")
    >>> _ = graph.empty(name="start") >> [graph.empty(name="left"), graph.empty(name="right")]
    >>> Console(width=60).print(levels(graph))  # doctest: +NORMALIZE_WHITESPACE
    demo: 3 nodes, 2 edges, 2 levels
      level   node    kind    does   waits for
     ──────────────────────────────────────────
      0       start   empty
    <BLANKLINE>
      1       left    empty          start
              right   empty          start
    <BLANKLINE>
    """
    return _each(definition, _level_table)


def _each(definition: Definition, show: Callable[[Level, bool], Iterable[RenderableType]]) -> Group:
    """A graph, and behind it each body in it that has nodes."""
    shown = [level for level in definition.levels if level is definition or level.dag]
    several = len(definition.devices) > 1
    return Group(*(part for level in shown for part in show(level, several)))


def _level_table(declared: Level, several: bool) -> Iterator[RenderableType]:
    by_level = _levels(declared.dag)
    table = _table("level", "node", "kind", "does", "waits for")
    for number, names in enumerate(by_level):
        for name in names:
            node = declared.node(name)
            level = Text(str(number) if name == names[0] else "")
            waits_for = Text(_some(declared.dag.predecessors(name)))
            table.add_row(level, Text(name, "bold"), _kind(node), Text(described(node, several)), waits_for)
        table.add_section()
    yield Text(f"{_summary(declared)}, {count_text(len(by_level), 'level')}")
    yield table
    yield from _cycles(declared.dag)


def tree(definition: Definition) -> Group:
    """The nodes as a tree, each once: under the node of the deepest level that it waits for.

    A node that is all that hangs under another follows it on the next line, so that only forks indent.

    Returns
    -------
    rich.console.Group
        A tree, and a line for each cycle. Bodies of nodes follow, each with a tree of its own.

    Examples
    --------
    >>> from rich.console import Console
    >>> graph = Definition("demo")
    >>> left, right, stop = graph.empty(name="left"), graph.empty(name="right"), graph.empty(name="stop")
    >>> _ = graph.empty(name="start") >> [left, right] >> stop
    >>> Console(width=60).print(tree(graph))
    demo: 4 nodes, 4 edges
    └── start  empty
        ├── left  empty
        │   ↓ stop  empty  also after right
        └── right  empty
    """
    return _each(definition, _level_tree)


def _level_tree(level: Level, several: bool) -> Iterator[RenderableType]:
    parents = _parents(level.dag)
    children: dict[str | None, list[str]] = {None: [], **{name: [] for name in parents}}
    for name, parent in parents.items():
        children[parent].append(name)
    root = Tree(Text(_summary(level)))
    waiting = deque((root, name) for name in children[None])
    while waiting:
        branch, name = waiting.popleft()
        label = _line(level, name, parents[name], several)
        while len(children[name]) == 1:
            (name,) = children[name]
            label.append("\n↓ ").append_text(_line(level, name, parents[name], several))
        grown = branch.add(label)
        waiting.extend((grown, child) for child in children[name])
    yield root
    yield from _cycles(level.dag)


def operands(definition: Definition) -> Table:
    """The buffers and params of a graph, and how many nodes use each.

    Returns
    -------
    rich.table.Table
        One row for each operand, in the order of declaration.
    """
    uses = Counter(name for node in definition.all_nodes for name in dict(named_operands(node)))
    table = _table("operand", "kind", "type", "size", "default", "nodes")
    for name, operand in definition.operands.items():
        table.add_row(Text(name, "bold"), *map(Text, (*_operand_cells(operand), str(uses[name]))))
    return table


def accesses(definition: Definition) -> Table:
    """What each node reads and writes.

    Returns
    -------
    rich.table.Table
        One row for each array of each node, and one more where it is read and written in different places; bytes are
        those that the defaults of the params give.
    """
    table = _table("node", "argument", "array", "access", "where", "why")
    last = None
    for row in rows(definition):
        name = Text(row.node.name if row.node is not last else "", "bold")
        last = row.node
        style = "yellow" if row.why else ""
        table.add_row(name, *map(Text, row[1:3]), Text(row.access, style), Text(row.where), Text(row.why, "dim"))
    return table


def memory(plan: Planned) -> Group:
    """Where the device arrays of a graph lie, each device's in a table.

    Examples
    --------
    >>> from rich.console import Console
    >>> from graphdsl.plan import plan
    >>> graph = Definition("demo")
    >>> out = graph.host_array("out", 1024, "f4")
    >>> x, y = (graph.device_array(name, 1024, "f4") for name in "xy")
    >>> _ = graph.memset(x, 0, name="clear") >> graph.memcpy(out, x, name="read") >> graph.memset(y, 0, name="last")
    >>> Console(width=100).print(memory(plan(graph)))  # doctest: +NORMALIZE_WHITESPACE
    8 KiB: planned 4 KiB of 4 KiB; no plan needs less than 4 KiB
    <BLANKLINE>
      array   offset    size   used            why
     ────────────────────────────────────────────────────────────────────────────────
      x            0   4 KiB   clear to read   it lies between nodes
      y        4,096   4 KiB                   nothing reads what node 'last' writes
    <BLANKLINE>
    """
    parts: list[RenderableType] = []
    for device, arena in sorted(plan.memory.items(), key=lambda item: -1 if item[0] is None else item[0]):
        title = "" if device is None else f"device {device}: "
        parts.append(Text(f"{title}{memory_summary(arena)}"))
        table = Table(box=SIMPLE_HEAD)
        for heading, side in (("array", "left"), ("offset", "right"), ("size", "right"), ("used", "left")):
            table.add_column(heading, justify=side, overflow="fold")  # type: ignore[arg-type]
        table.add_column("why", overflow="fold")
        for place in arena.places.values():
            times = plan.times.get(place.name)
            used = f"{plan.steps[times[0]]} to {plan.steps[times[-1]]}" if times else ""
            cells = (f"{place.offset:,}", bytes_text(place.nbytes), used, place.why)
            table.add_row(Text(place.name, "bold"), *map(Text, cells))
        parts.append(table)
    return Group(*parts or [Text("no device arrays of its own")])


def _operand_cells(operand: Operand) -> tuple[str, str, str, str]:
    """Kind, type, size and default."""
    if isinstance(operand, Buffer):
        kind = f"external, {operand.place}" if operand.external else operand.place
        return kind, f"{operand.dtype}{list(operand.shape)}", bytes_text(operand.allocation_nbytes), ""
    if isinstance(operand, Event):
        return "external event" if operand.external else "event", "with timing" if operand.timing else "", "", ""
    kind = type(operand).__name__.lower()
    default = "" if operand.default is None else str(operand.default)
    return kind, str(operand.dtype), bytes_text(operand.dtype.itemsize), default


# The DAG


def _levels(dag: nx.DiGraph[str]) -> list[list[str]]:
    """Node names by level, in the order of declaration; a cycle counts as one node."""
    place = {name: i for i, name in enumerate(dag)}
    condensed = nx.condensation(dag)
    members = condensed.nodes.data("members")
    return [
        sorted((name for component in generation for name in members[component]), key=place.__getitem__)
        for generation in nx.topological_generations(condensed)
    ]


def _parents(dag: nx.DiGraph[str]) -> dict[str, str | None]:
    """For each node the one of the deepest level that it waits for, None where it waits for none."""
    level = {name: number for number, names in enumerate(_levels(dag)) for name in names}
    parents: dict[str, str | None] = {}
    for name in dag:
        earlier = (before for before in dag.predecessors(name) if level[before] < level[name])
        parents[name] = max(earlier, key=level.__getitem__, default=None)
    return parents


def _cycles(dag: nx.DiGraph[str]) -> Iterator[Text]:
    """A line for each group of nodes on cycles: the shortest cycle through the first of them."""
    component = {name: members for members in nx.strongly_connected_components(dag) for name in members}
    seen: set[str] = set()
    for first in dag:
        if first in seen:
            continue
        seen |= component[first]
        ways = [nx.shortest_path(dag, after, first) for after in dag.successors(first) if after in component[first]]
        if ways:
            yield Text(f"cycle: {_path([first, *min(ways, key=len)])}", "red")


# Text


def _summary(level: Level) -> str:
    edges = level.dag.number_of_edges()
    return f"{level.name}: {count_text(len(level), 'node')}, {count_text(edges, 'edge')}"


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _kind(node: Node) -> Text:
    return Text(node.kind, _COLOURS.get(node.kind, "dim"))


def _line(level: Level, name: str, parent: str | None, several: bool) -> Text:
    node = level.node(name)
    others = _some(before for before in level.dag.predecessors(name) if before != parent)
    parts = [Text(name, "bold"), _kind(node), Text(described(node, several))]
    parts.append(Text(f"also after {others}" if others else "", "dim"))
    return Text("  ").join(part for part in parts if part)


def _path(names: list[str]) -> str:
    """Names in the order of the edges; of a long path, its two ends."""
    if len(names) > 2 * _NAMES_SHOWN:
        names = [*names[:_NAMES_SHOWN], f"({len(names) - 2 * _NAMES_SHOWN} more)", *names[-_NAMES_SHOWN:]]
    return " → ".join(names)


def _some(names: Iterable[str]) -> str:
    shown = list(names)
    more = len(shown) - _NAMES_SHOWN
    return ", ".join(shown[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
