"""Finds what is wrong with a definition before any driver call, and says what to do about it.

`check` holds a definition to every rule; `check_nodes` and `check_launch` hold what an update changes to the same
rules. The stage reads definitions and compiled kernels, and must not talk to a driver or change anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphdsl.check import (  # noqa: F401  # registers the rules
    advice,
    allocations,
    batch,
    captured,
    conditionals,
    copies,
    device_copies,
    devices,
    edges,
    elementwise,
    hazards,
    imported,
    kernels,
    launch_attributes,
    lifetimes,
    memsets,
    operands,
    params,
    placement,
    programmatic,
    rows,
    source_kernels,
    structure,
)
from graphdsl.check.audit import Audit
from graphdsl.check.context import Context
from graphdsl.check.inference import missing_edges
from graphdsl.check.placement import placement_fits
from graphdsl.check.report import Finding, Report, Severity
from graphdsl.check.rules import Rule, rules, rules_page
from graphdsl.check.stale import Flow
from graphdsl.check.subjects import Launch, Launches, Subject, Switched
from graphdsl.declare.ancestry import Inside
from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.definition import Definition
from graphdsl.declare.independent import Independent
from graphdsl.declare.limits import Limits, Target
from graphdsl.declare.node import Node
from graphdsl.declare.operands import Buffer
from graphdsl.declare.selection import selected
from graphdsl.declare.targets import Targets, targets_of
from graphdsl.errors import DeclarationError, Location

if TYPE_CHECKING:
    from graphdsl.compile.image import KernelImage

__all__ = [
    "Finding",
    "Report",
    "Rule",
    "Severity",
    "check",
    "check_disabled",
    "check_launch",
    "check_nodes",
    "check_shared",
    "infer_edges",
    "launch_fits",
    "rules",
    "rules_page",
]


def check(
    definition: Definition,
    *,
    target: Target | list[Target] | Targets | None = None,
    values: Mapping[str, Any] | None = None,
    compile: bool = True,
    disabled: Iterable[str] = (),
    errors_only: bool = False,
) -> Report:
    """Hold a definition to every rule. Needs no GPU.

    Parameters
    ----------
    definition : Definition
        What to check; it is not changed.
    target : str, tuple of int, Limits, list of these, or Targets, optional
        What it is to run on: ``"sm_80"``, ``(8, 0)``, or the limits of a device; by default ``"sm_90"``. A graph over
        several devices runs on as many such ones, or on the devices of a list, by their numbers.
    values : dict of str to number, optional
        Values of params by name, instead of their defaults.
    compile : bool
        Compile each kernel too, for the target: what fails is a finding like any other. Without, rules that need the
        compiled kernel (its registers, its static shared memory) find nothing.
    disabled : iterable of str, optional
        Names of nodes that an exec of the graph disables, or patterns such as ``"layer0/*"``: GD703 finds the nodes
        that read what these would have written.
    errors_only : bool
        Leave out the rules about what keeps no graph from being instantiated.

    Returns
    -------
    Report
        Every finding: one defect never hides another.

    Raises
    ------
    DeclarationError
        If the target, or a name among the disabled, is not known.

    Examples
    --------
    >>> graph = Definition("demo")
    >>> a, b = graph.empty(name="a"), graph.empty(name="b")
    >>> _ = a >> b >> a
    >>> [(found.code, found.value) for found in check(graph)]
    [('GD101', 'a -> b -> a')]
    """
    targets = targets_of(target, definition.devices)
    given = {} if values is None else values
    if not isinstance(given, Mapping):
        raise DeclarationError(
            "values are a dict of numbers by the names of params",
            field="values",
            value=f"{values!r} of type {type(values).__name__}",
            remedy="Pass values={'n': 512}.",
        )
    context = Context.of_graph(definition, targets, given, compile=compile)
    if names := [disabled] if isinstance(disabled, str) else list(disabled):
        context.disabled = frozenset(context.nodes[i].name for i in selected(context.nodes, names))
    context.errors_only = errors_only
    return _report([rule for rule in rules() if rule.severity == "error" or not errors_only], context)


def infer_edges(definition: Definition, values: Mapping[str, Any] | None = None) -> list[tuple[Node, Node]]:
    """Declare the edges that the order of the program and the accesses of nodes need, in bodies too.

    Parameters
    ----------
    definition : Definition
        A whole graph; the edges are added to it.
    values : dict of str to number, optional
        Values of params by name, instead of their defaults.

    Returns
    -------
    list of pairs of Node
        Source and target of each edge that was added.

    Raises
    ------
    DeclarationError
        If the graph has a cycle.
    """
    context = Context.of_graph(definition, targets_of(None, definition.devices), values or {})
    outline = context.audit.outline
    if len(outline.order) < len(context.nodes):
        raise DeclarationError(
            "edges are inferred in a graph without cycles",
            field="edges",
            value=definition.name,
            remedy="Call check, which names the cycle.",
        )
    found = [(context.nodes[a], context.nodes[b]) for a, b in missing_edges(context.audit.relations)]
    for source, target in found:
        source.definition.edge(source, target)
    return found


def check_nodes(
    nodes: Iterable[Node],
    *,
    targets: Targets,
    values: Mapping[str, Any],
    images: Mapping[str, KernelImage | None] | None = None,
) -> Report:
    """Hold some nodes of a graph to the rules about nodes and launches, as an update would set them.

    Parameters
    ----------
    nodes : iterable of Node
        Nodes of one graph, or what `Node.replaced` gives for them.
    targets : Targets
        The devices of the exec.
    values : dict of str to number
        The value of each param by name, converted to its dtype.
    images : dict of str to KernelImage, optional
        The compiled kernel of each kernel node by the node's name: arguments must keep to its types, and blocks to
        its registers. Nothing is compiled.

    Returns
    -------
    Report
    """
    nodes = list(nodes)
    if not nodes:
        return Report([], graph="", target=targets.title)
    return _report(_NODE_RULES, Context(nodes[0].definition, nodes, targets, values, images=images or {}))


def check_disabled(
    nodes: Sequence[Node],
    levels: Iterable[Inside],
    disabled: Collection[int],
    values: Mapping[str, Any],
) -> list[Finding]:
    """Hold the nodes that an exec has disabled to the rule about them.

    Parameters
    ----------
    nodes : sequence of Node
        Those of the graph and of all bodies in it.
    levels : iterable of Inside
        How they hang together.
    disabled : collection of int
        Indices of the disabled nodes.
    values : dict of str to number
        Values of params by name.
    """
    return list(_DISABLED_RULE.findings(Switched(Flow(nodes, levels, disabled, values))))


def check_shared(
    nodes: Sequence[Node],
    levels: Iterable[Inside],
    disabled: Collection[int],
    values: Mapping[str, Any],
    addresses: Mapping[Buffer, int],
    independents: Sequence[Independent],
) -> list[Finding]:
    """Hold nodes to the rules about conflicts, as far as buffers of two names overlap.

    Parameters
    ----------
    nodes, levels, disabled, values
        As for `check_disabled`.
    addresses : dict of Buffer to int
        Where the buffers in question lie.
    independents : sequence of Independent
        What the user says may run in any order.
    """
    sides = [(each.one, each.other) for each in independents]
    audit = Audit(nodes, levels, values, addresses, disabled, sides)
    return list(hazards.shared_hazards(audit.conflicts))


def check_launch(
    node: str,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    limits: Limits,
    image: KernelImage | None = None,
    *,
    attributes: LaunchAttributes | None = None,
    location: Location | None = None,
) -> list[Finding]:
    """Hold one evaluated launch to the rules about launches.

    Parameters
    ----------
    node : str
        Name of the kernel node.
    grid, block : sequence of three int
        Blocks in the grid, threads in a block.
    shared_bytes : int
        Dynamic shared memory of a block.
    limits : Limits
        Of the device.
    image : KernelImage, optional
        The compiled kernel, for its registers and static shared memory.
    attributes : LaunchAttributes, optional
        Cluster, cooperation and so on.
    location : tuple of str and int, optional
        Where the node was declared.

    Returns
    -------
    list of Finding

    Examples
    --------
    >>> from graphdsl.declare.limits import limits_of
    >>> [found.code for found in check_launch("scale", (0, 1, 1), (2048, 1, 1), 0, limits_of("sm_90"))]
    ['GD211', 'GD212']
    """
    launch = Launch([Subject(node, location)], tuple(grid), tuple(block), shared_bytes, image, attributes)
    context = Launches(limits, [launch])
    return [found for rule in _LAUNCH_RULES for found in rule.findings(context)]


def launch_fits(
    dims: Sequence[int], limits: Limits, image: KernelImage, attributes: LaunchAttributes | None = None
) -> bool:
    """True if `check_launch` would find nothing: the same question, for updates, where only the answer counts.

    Parameters
    ----------
    dims : sequence of seven int
        Grid and block in x, y and z, and the dynamic shared memory of a block in bytes.
    limits : Limits
        Of the device.
    image : KernelImage
        The compiled kernel.
    attributes : LaunchAttributes, optional
        Cluster, cooperation and so on.
    """
    grid_x, grid_y, grid_z, x, y, z, shared_bytes = dims
    most, largest = limits.max_grid, limits.max_block
    return (
        1 <= grid_x <= most[0]
        and 1 <= grid_y <= most[1]
        and 1 <= grid_z <= most[2]
        and 1 <= x <= largest[0]
        and 1 <= y <= largest[1]
        and 1 <= z <= largest[2]
        and x * y * z <= min(limits.max_threads, image.max_threads)
        and image.least_shared_bytes <= shared_bytes <= limits.shared_optin_bytes - image.shared_bytes
        and (image.block is None or (x, y, z) == image.block)
        and placement_fits((grid_x, grid_y, grid_z), x * y * z, shared_bytes, limits, image, attributes)
    )


_LAUNCH_RULES = [rule for rule in rules() if rule.subject == "launch"]
_DISABLED_RULE = next(rule for rule in rules() if rule.code == "GD703")
_NODE_RULES = [rule for rule in rules() if rule.subject != "graph"]


def _report(held_to: Iterable[Rule], context: Context) -> Report:
    """Hold nodes to rules: those about the graph look at all of it, the others at the nodes of each device."""
    found = [
        finding
        for rule in held_to
        for part in ([context] if rule.subject == "graph" else context.by_device)
        for finding in rule.findings(part)
    ]
    return Report(found, graph=context.definition.name, target=context.targets.title)
