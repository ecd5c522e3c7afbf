"""The DAG as DOT text, and as a picture through Graphviz.

The text is the same for the same definition, whatever its names hold, and a wrong graph is drawn too: that is when a
picture is needed most. This module must not judge a definition: findings are given to it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import networkx as nx

from graphdsl.declare.definition import Definition
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import MemcpyNode, MemsetNode, named_operands
from graphdsl.declare.operands import Buffer
from graphdsl.declare.store import Level
from graphdsl.draw.columns import columns_of
from graphdsl.draw.flows import Flow, Flows
from graphdsl.draw.labels import count_text, described, operand_text, scope_path, short_name
from graphdsl.draw.syntax import attributes_text, html_text, identifier, other_identifier, tooltip_text
from graphdsl.errors import DeclarationError, GraphdslError

FORMATS = ("svg", "png", "pdf", "dot", "gv")
"""What `render` writes; the last two are the DOT text itself."""

MANY_NODES = 1000
"""From here on the layout settles for less, so that it takes seconds where it would take minutes."""

_LINE = 64  # characters of a label's second line; the tooltip has all of them
_FONT = "Helvetica,Arial,sans-serif"
_INK, _FAINT, _ERROR = "#1f2933", "#5c6b7a", "#c62828"


_KINDS: dict[str, dict[str, Any]] = {
    "kernel": {"fillcolor": "#e3eefb", "color": "#3a6ea5", "shape": "box"},
    "memcpy": {"fillcolor": "#fdf0dc", "color": "#b9771f", "shape": "polygon", "skew": 0.1, "margin": 0},
    "memset": {
        "fillcolor": "#f1e9f8",
        "color": "#7d5aa6",
        "shape": "octagon",
        "style": "filled",
        "margin": "0.05,0.03",
    },
    "host": {"fillcolor": "#e4f3e8", "color": "#3d8455", "shape": "note"},
    "captured": {"fillcolor": "#e0f2f1", "color": "#2f7d7a", "shape": "component"},
    "empty": {"fillcolor": "#eef1f4", "color": "#76828f", "shape": "oval", "margin": 0},
    "event record": {"fillcolor": "#fbe9ee", "color": "#a8456b", "shape": "cds", "style": "filled"},
    "event wait": {"fillcolor": "#fbe9ee", "color": "#a8456b", "shape": "cds", "style": "filled"},
    "alloc": {"fillcolor": "#e0f2f1", "color": "#2f7d76", "shape": "trapezium", "style": "filled", "margin": 0},
    "free": {"fillcolor": "#e0f2f1", "color": "#2f7d76", "shape": "invtrapezium", "style": "filled", "margin": 0},
    "batch mem op": {"fillcolor": "#f6e7e0", "color": "#a3552f", "shape": "component"},
    "child": {"fillcolor": "#eef1f4", "color": "#3a6ea5", "shape": "box3d"},
    "conditional": {
        "fillcolor": "#fdf6d8",
        "color": "#9a7d0a",
        "shape": "hexagon",
        "style": "filled",
        "margin": "0.05,0.03",
    },
}
_PORTS: dict[str, dict[str, Any]] = {
    "programmatic": {"style": "dashed", "tooltip": "programmatic"},
    "launch_order": {"style": "dashed", "tooltip": "programmatic, launch order"},
}
_LANE: dict[str, Any] = {
    "style": "dashed",
    "color": "#2a7fb8",
    "tooltip": "a lane: added by the plan, not declared",
}
_OTHER_KIND: dict[str, Any] = {"fillcolor": "#ffffff", "color": "#76828f", "shape": "box"}
_WRONG: dict[str, Any] = {"fillcolor": "#fdeaea", "color": _ERROR}


class Finding(Protocol):
    """What a drawing needs of a check's finding (`graphdsl.check.Finding`)."""

    @property
    def code(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def nodes(self) -> tuple[str, ...]: ...


def to_dot(
    definition: Definition,
    *,
    findings: Iterable[Finding] = (),
    operands: bool = False,
    access: bool = False,
    planned: Collection[tuple[str, str]] = (),
    columns: int = 1,
) -> str:
    """The DAG in the DOT language, readable by any Graphviz.

    Scopes become clusters, each kind of node has its shape and colour, and a second line says what a node does. What
    is wrong is red: nodes with an error, edges on a cycle, edges declared twice, edges to another graph.

    Parameters
    ----------
    definition : Definition
        Drawn whether it is right or wrong.
    findings : iterable of Finding
        Nodes with a finding of severity ``"error"`` are drawn red, with its code.
    operands : bool
        Draw buffers too, with dashed lines to the nodes that use them.
    access : bool
        Name at each edge the buffers that its source writes and its target reads, and in parentheses those that it
        only keeps from being written too early.
    planned : collection of pairs of str
        Edges that a plan adds, by the names of their ends: drawn dashed.
    columns : int
        Columns, side by side, into which a long graph is broken, between nodes and between outermost scopes.

    Returns
    -------
    str
        The same text for the same definition. The identifier of a node is its name, with a backslash before each
        backslash and before a percent sign at the start.

    Examples
    --------
    >>> graph = Definition("demo")
    >>> with graph.sequence():
    ...     start, stop = graph.empty(name="start"), graph.empty(name="stop")
    >>> '"start" -> "stop"' in to_dot(graph)
    True
    """
    nodes = definition.all_nodes
    wrong = _codes_by_node(findings)
    flows = Flows(definition) if access else None
    column = columns_of(definition, columns)
    lines = [
        f"digraph {identifier(definition.name)} {{",
        *_defaults(definition, nodes, bool(wrong), len(planned)),
        *_node_lines(nodes, wrong, len(definition.devices) > 1),
        *(line for level in definition.levels for line in _edge_lines(level, flows, column)),
        *(f"  {identifier(source)} -> {identifier(target)} [{attributes_text(_LANE)}];" for source, target in planned),
        *_body_lines(nodes),
        *(line for level in definition.levels for line in _foreign_lines(level)),
        *(_operand_lines(definition, nodes) if operands else ()),
        "}",
    ]
    return "\n".join(lines) + "\n"


def render(dot_text: str, format: str) -> bytes:
    """A picture of DOT text, laid out by Graphviz.

    Parameters
    ----------
    dot_text : str
        What `to_dot` gave.
    format : str
        One of `FORMATS`: ``"svg"``, ``"png"``, ``"pdf"``, or ``"dot"`` or ``"gv"`` for the text itself.

    Returns
    -------
    bytes
        The contents of a file of that format.

    Raises
    ------
    DeclarationError
        If the format is none of these.
    GraphdslError
        If Graphviz cannot be loaded.

    Notes
    -----
    The layout of 1,000 nodes takes about a second. From there on `to_dot` bounds the effort that Graphviz spends on
    short edges and few crossings, and edges are straight: 10,000 nodes then take 3 to 40 s by their width (measured
    on one core), where the full effort takes minutes.

    Examples
    --------
    >>> render(to_dot(Definition()), "svg").startswith(b"<?xml")
    True
    """
    if format not in FORMATS:
        raise DeclarationError(
            f"a picture has one of the formats {', '.join(FORMATS)}",
            field="format",
            value=repr(format),
            remedy="Choose one of them, as a file name's suffix such as graph.svg.",
        )
    if format in ("dot", "gv"):
        return dot_text.encode()
    data: bytes = _graphviz().AGraph(string=dot_text).draw(format=format, prog="dot")
    return data


def _graphviz() -> Any:
    """`pygraphviz`, imported when a picture is wanted: its libraries take longer to load than all else here."""
    try:
        import pygraphviz
    except ImportError as problem:
        raise GraphdslError(
            f"pictures are drawn by Graphviz, which could not be loaded: {problem}",
            field="format",
            remedy="Its wheel needs GLib and the X11 client libraries of the system: apt install libglib2.0-0 "
            "libxrender1 libxext6, or your system's packages of them. The formats dot and gv need neither.",
        ) from problem
    return pygraphviz


def write(dot_text: str, path: str | Path) -> Path:
    """Write a picture of DOT text to a file, in the format that its suffix names; gives the path.

    Raises
    ------
    DeclarationError
        If the suffix names none of `FORMATS`, or the file cannot be written.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise DeclarationError(
            "a picture is written to a path, which is a str or a pathlib.Path",
            field="path",
            value=f"{path!r} of type {type(path).__name__}",
            remedy="Pass a path such as 'graph.svg'.",
        )
    path = Path(path)
    picture = render(dot_text, path.suffix[1:].lower())
    try:
        path.write_bytes(picture)
    except OSError as problem:
        raise DeclarationError(
            f"the picture could not be written: {problem.strerror}",
            field="path",
            value=repr(str(path)),
            remedy="Choose a file in a folder that exists and that you may write to.",
        ) from problem
    return path


def _codes_by_node(findings: Iterable[Finding]) -> dict[str, list[str]]:
    codes: dict[str, list[str]] = defaultdict(list)
    for finding in findings:
        for node in finding.nodes if finding.severity == "error" else ():
            if finding.code not in codes[node]:
                codes[node].append(finding.code)
    return codes


# Blocks of lines


def _defaults(definition: Definition, nodes: list[Node], wrong: bool, planned: int) -> Iterator[str]:
    graph = {
        "label": _title(definition, nodes, wrong, planned),
        "labelloc": "t",
        "labeljust": "l",
        "fontname": _FONT,
        "fontcolor": _FAINT,
        "fontsize": 11,
        "bgcolor": "white",
        "compound": True,
        "pad": 0.2,
        "nodesep": 0.3,
        "ranksep": 0.4,
    }
    if len(nodes) >= MANY_NODES:
        graph |= {"splines": "line", "nslimit": 0.02, "nslimit1": 0.02, "mclimit": 0.001}
    node = {"fontname": _FONT, "fontcolor": _INK, "fontsize": 12, "style": "rounded,filled", "margin": "0.14,0.07"}
    edge = {"fontname": _FONT, "fontsize": 10, "color": _FAINT, "arrowsize": 0.7}
    for name, attributes in (("graph", graph), ("node", node), ("edge", edge)):
        yield f"  {name} [{attributes_text(attributes)}];"


def _title(definition: Definition, nodes: list[Node], wrong: bool, planned: int) -> str:
    """The name and the size of the graph, and under it the colours of the kinds that it has: a small legend."""
    edges = sum(level.dag.number_of_edges() for level in definition.levels)
    counts = f"{count_text(len(nodes), 'node')}, {count_text(edges, 'edge')}"
    if planned:
        counts += f", {count_text(planned, 'edge')} added by the plan (dashed)"
    present = {node.kind for node in nodes}
    kinds = [kind for kind in _KINDS if kind in present] + sorted(present - set(_KINDS))
    legend = [(kind, _KINDS.get(kind, _OTHER_KIND)) for kind in kinds] + ([("error", _WRONG)] if wrong else [])
    cells = "".join(
        f'<TD BORDER="1" STYLE="ROUNDED" COLOR="{style["color"]}" BGCOLOR="{style["fillcolor"]}"> {kind} </TD>'
        for kind, style in legend
    )
    span = len(legend) + 1
    swatches = f'<TR>{cells}<TD WIDTH="0"></TD></TR>' if legend else ""
    title = f'<FONT POINT-SIZE="15" COLOR="{_INK}"><B>{html_text(definition.name)}</B></FONT>   {counts}'
    return (
        '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="4" CELLPADDING="2">'
        f'<TR><TD COLSPAN="{span}" ALIGN="LEFT">{title}</TD></TR>{swatches}</TABLE>'
    )


def _node_lines(nodes: list[Node], wrong: Mapping[str, list[str]], several: bool) -> Iterator[str]:
    """Nodes in nested clusters; clusters and nodes in the order of declaration. ``several`` is as in `described`."""
    seen: dict[tuple[str, ...], int] = {}

    def place(node: Node) -> list[int]:
        scope = scope_path(node)
        return [seen.setdefault(scope[: depth + 1], len(seen)) for depth in range(len(scope))]

    opened: tuple[str, ...] = ()
    for _, node in sorted(((place(node), node) for node in nodes), key=lambda pair: pair[0]):
        scope = scope_path(node)
        shared = _shared(opened, scope)
        yield from ("  " * depth + "}" for depth in range(len(opened), shared, -1))
        for depth in range(shared, len(scope)):
            yield from _cluster_start(scope[: depth + 1])
        opened = scope
        attributes = attributes_text(_node(node, wrong.get(node.name, ()), several))
        yield "  " * (len(scope) + 1) + f"{identifier(node.name)} [{attributes}];"
    yield from ("  " * depth + "}" for depth in range(len(opened), 0, -1))


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many scopes two paths share from the outermost on."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def _cluster_start(scope: tuple[str, ...]) -> Iterator[str]:
    indent = "  " * len(scope)
    attributes = {
        "label": f"<B>{html_text(scope[-1])}</B>",
        "tooltip": tooltip_text("/".join(scope)),
        "style": "rounded",
        "color": "#c5ced6",
        "margin": 12,
    }
    yield f"{indent}subgraph {identifier('cluster ' + '/'.join(scope))} {{"
    yield f"{indent}  graph [{attributes_text(attributes)}];"


def _edge_lines(level: Level, flows: Flows | None, column: Mapping[str, int]) -> Iterator[str]:
    dag = level.dag
    on_cycle = _cyclic_edges(dag)
    for source, target, edge in dag.edges.data():
        look: dict[str, Any] = dict(_PORTS.get(edge["port"], {}))
        if flows is not None:
            look |= _flow(flows.along(level.node(source), level.node(target)), look.get("tooltip", ""))
        count = len(edge["locations"])
        if count > 1:
            look |= {"label": f"{count} times", "fontcolor": _ERROR, "color": _ERROR}
        elif (source, target) in on_cycle:
            look |= {"color": _ERROR, "penwidth": 1.6}
        if column.get(source) != column.get(target):
            look["constraint"] = False
        attributes = f" [{attributes_text(look)}]" if look else ""
        yield f"  {identifier(source)} -> {identifier(target)}{attributes};"


def _flow(flow: Flow, port: str) -> dict[str, Any]:
    """A label for what flows along an edge, no more prominent than the second line of a node."""
    if not flow.text:
        return {}
    told = tooltip_text("; ".join(filter(None, (port, flow.explanation))))
    return {
        "label": f'<FONT POINT-SIZE="9" COLOR="{_FAINT}"> {html_text(flow.text)} </FONT>',
        "tooltip": told,
        "labeltooltip": told,
    }


def _body_lines(nodes: list[Node]) -> Iterator[str]:
    """A dotted line from each node that holds others to each of its bodies."""
    for node in nodes:
        for body in node.bodies:
            if body.dag:
                first = min(body.dag.in_degree(), key=lambda node: node[1])[0]  # 0, but where all lie on cycles
                cluster = {"lhead": f"cluster {body.name}", "style": "dotted", "arrowhead": "none"}
                yield f"  {identifier(node.name)} -> {identifier(first)} [{attributes_text(cluster)}];"


def _cyclic_edges(dag: nx.DiGraph[str]) -> set[tuple[str, str]]:
    component = {name: i for i, members in enumerate(nx.strongly_connected_components(dag)) for name in members}
    return {(source, target) for source, target in dag.edges if component[source] == component[target]}


def _foreign_lines(level: Level) -> Iterator[str]:
    """Edges to nodes of other levels, which are errors, with a dashed node in place of the other graph's."""
    style = {"style": "dashed", "color": _ERROR}
    ghosts: dict[int, str] = {}
    for _, foreign in level.dag.nodes.data("foreign", default=()):
        for source, target, _ in foreign:
            other = target if source.definition is level else source
            if id(other) not in ghosts:
                ghosts[id(other)] = other_identifier("foreign", f"{len(ghosts)} {other.name}")
                label = _label(other.name, f"of {other.definition.what} {other.definition.name}")
                yield f"  {ghosts[id(other)]} [{attributes_text({'label': label, **style})}];"
            ends = (ghosts.get(id(end), identifier(end.name)) for end in (source, target))
            yield f"  {' -> '.join(ends)} [{attributes_text(style)}];"


def _operand_lines(definition: Definition, nodes: list[Node]) -> Iterator[str]:
    for buffer in definition.operands.values():
        if isinstance(buffer, Buffer):
            yield f"  {_operand_identifier(buffer)} [{attributes_text(_operand(buffer))}];"
    placed: set[Buffer] = set()
    for node in nodes:
        for buffer, written, read in _uses(node):
            if buffer.definition is not definition.root:
                continue
            # Only the first use decides where a buffer stands: beside the node that fills it, or before its reader.
            style = {"style": "dashed", "color": "#9aa5b1", "weight": 0, "constraint": buffer not in placed}
            style["dir"] = "both" if written and read else "forward" if written or read else "none"
            placed.add(buffer)
            ends = [_operand_identifier(buffer), identifier(node.name)]
            yield f"  {' -> '.join(reversed(ends) if written else ends)} [{attributes_text(style)}];"


def _operand(buffer: Buffer) -> dict[str, Any]:
    return {
        "label": _label(buffer.name, f"{buffer.dtype}{list(buffer.shape)} {buffer.place}"),
        "shape": "cylinder" if buffer.space == "device" else "folder",
        "style": "filled",
        "fillcolor": "white",
        "color": "#9aa5b1",
        "class": "operand",
    }


def _operand_identifier(buffer: Buffer) -> str:
    return other_identifier("operand", buffer.name)


def _uses(node: Node) -> Iterator[tuple[Buffer, bool, bool]]:
    """Buffers that a node uses, each once, and whether it is known to write and to read them."""
    written = {node.destination.buffer} if isinstance(node, (MemcpyNode, MemsetNode)) else set()
    read = {node.source.buffer} if isinstance(node, MemcpyNode) else set()
    for operand in dict(named_operands(node)).values():
        if isinstance(operand, Buffer):
            yield operand, operand in written, operand in read


# One node


def _node(node: Node, codes: Iterable[str], several: bool) -> dict[str, Any]:
    text = described(node, several)
    return {
        "label": _label(short_name(node), text, " ".join(codes)),
        "tooltip": _tooltip(node, text, codes),
        "class": node.kind,
        **_KINDS.get(node.kind, _OTHER_KIND),
        **(_WRONG if codes else {}),
    }


def _label(name: str, text: str, codes: str = "") -> str:
    rows = [f"<B>{html_text(name)}</B>"]
    if text:
        rows.append(f'<FONT POINT-SIZE="10" COLOR="{_FAINT}">{html_text(_shortened(text))}</FONT>')
    if codes:
        rows.append(f'<FONT POINT-SIZE="10" COLOR="{_ERROR}"><B>{html_text(codes)}</B></FONT>')
    return "<BR/>".join(rows)


def _tooltip(node: Node, text: str, codes: Iterable[str]) -> str:
    arguments = getattr(node, "args", ())
    lines = [
        f"{node.kind} {node.name}",
        text,
        f"args: {', '.join(map(operand_text, arguments))}" if arguments else "",
        f"errors: {' '.join(codes)}" if codes else "",
    ]
    return "\\n".join(tooltip_text(line) for line in lines if line)


def _shortened(text: str) -> str:
    return text if len(text) <= _LINE else text[: _LINE - 1] + "…"
