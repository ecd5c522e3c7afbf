"""What the rules of a check look at, gathered once: nodes by kind, values of expressions, types and images of kernels.

Nodes that share a kernel, operand types and a launch are gathered into one object, so that a rule that judges them
judges them once. This module must not judge: what has no value here, a rule reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphdsl.cached import cached_property
from graphdsl.check import source_groups
from graphdsl.check.audit import Audit
from graphdsl.check.stale import Flow
from graphdsl.check.subjects import (
    KernelGroup,
    Launch,
    Region,
    Use,
    leaves,
    uses_of,
)
from graphdsl.compile.roles import Role, roles
from graphdsl.declare.ancestry import insides
from graphdsl.declare.attributes import LaunchAttributes
from graphdsl.declare.condition import Condition
from graphdsl.declare.definition import Definition
from graphdsl.declare.event import Event
from graphdsl.declare.expressions import Expr, Param
from graphdsl.declare.limits import Limits
from graphdsl.declare.node import Node, NodeType
from graphdsl.declare.nodes import CapturedNode, Dim3, HostNode, KernelNode, MemcpyNode, MemsetNode
from graphdsl.declare.operand_level import Operand
from graphdsl.declare.operands import Array, Bounds, Buffer, View
from graphdsl.declare.rows import Dimension
from graphdsl.declare.scalars import convert_scalar
from graphdsl.declare.sources import SourceKernel
from graphdsl.declare.targets import Targets
from graphdsl.errors import CompileError, GraphdslError, text_of

if TYPE_CHECKING:
    from graphdsl.compile.image import KernelImage


class Context:
    """What rules look at.

    Attributes
    ----------
    definition : Definition
        What is checked.
    levels : list of Level
        The graph itself, and every body in it.
    nodes : list of Node
        The nodes of all levels, or those that an update touches.
    targets : Targets
        The devices that the graph is to run on.
    limits : Limits
        Of the device that the nodes run on; where they run on several, of that which the graph is instantiated on.
    values : mapping of str to number
        The values that params have, by name; a param that is missing has none.
    given : mapping of str to number
        The values as the caller gave them.
    misfits : dict of str to GraphdslError
        Given values that their param does not take, by name.
    disabled : frozenset of str
        Names of the nodes that are taken to be disabled.
    errors_only : bool
        True where nobody asks for less than errors.
    kernels, copies, memsets, hosts, captured : list of Node
        The nodes of each kind.
    """

    def __init__(
        self,
        definition: Definition,
        nodes: Iterable[Node],
        targets: Targets,
        values: Mapping[str, Any],
        *,
        limits: Limits | None = None,
        images: Mapping[str, KernelImage | None] | None = None,
        compile: bool = False,
    ) -> None:
        self.definition = definition
        self.levels = definition.levels
        self.nodes = list(nodes)
        self.targets = targets
        self.limits = targets.limits_of(None) if limits is None else limits
        self.values = values
        self.given: Mapping[str, Any] = {}
        self.misfits: dict[str, GraphdslError] = {}
        self.disabled: frozenset[str] = frozenset()
        self.errors_only = False
        self._images = images
        self._compile = compile
        self._by_type: dict[type[Node], list[Any]] = {}
        for node in self.nodes:
            self._by_type.setdefault(type(node), []).append(node)
        self.kernels: list[KernelNode] = self.of_kind(KernelNode)
        self.copies: list[MemcpyNode] = self.of_kind(MemcpyNode)
        self.memsets: list[MemsetNode] = self.of_kind(MemsetNode)
        self.transfers: list[MemcpyNode | MemsetNode] = [*self.copies, *self.memsets]
        self.hosts: list[HostNode] = self.of_kind(HostNode)
        self.captured: list[CapturedNode] = self.of_kind(CapturedNode)
        self.failures: dict[Expr, str] = {}
        self._known: set[Param] = set()
        self._evaluated: dict[Expr, Any] = {}
        self._memo: dict[Expr, Any] = {}
        self._regions: dict[int, Region | None] = {}
        self._dimensions: dict[str, tuple[Dimension, ...] | None] = {}
        self._compiled: dict[Any, KernelImage | CompileError] = {}
        self._codes: source_groups.Codes = {}

    @classmethod
    def of_graph(
        cls, definition: Definition, targets: Targets, given: Mapping[str, Any], *, compile: bool = False
    ) -> Context:
        """The context of a whole definition, with the values given for its params and the defaults of the others."""
        made = cls(definition, definition.all_nodes, targets, {}, compile=compile)
        made.given = given
        made.values, made.misfits = _param_values(definition, given)
        return made

    @cached_property
    def by_device(self) -> list[Context]:
        """The contexts of the nodes of each device, with what it can do; this one where all are on one device."""
        if not self.targets.several:
            return [self]
        nodes: dict[int, list[Node]] = {}
        for node in self.nodes:
            nodes.setdefault(self.targets.number(node.device), []).append(node)
        return [self._part(number, nodes[number]) for number in sorted(nodes)]

    def _part(self, number: int, nodes: list[Node]) -> Context:
        made = Context(
            self.definition,
            nodes,
            self.targets,
            self.values,
            limits=self.targets.limits_of(number),
            images=self._images,
            compile=self._compile,
        )
        made.given, made.misfits, made.disabled = self.given, self.misfits, self.disabled
        return made

    @cached_property
    def flow(self) -> Flow:
        """The nodes with their order, and which are disabled."""
        return Flow(self.nodes, insides(self.definition, self.nodes), self._disabled_indices, self.values)

    @property
    def _disabled_indices(self) -> set[int]:
        return {number for number, node in enumerate(self.nodes) if node.name in self.disabled}

    @cached_property
    def audit(self) -> Audit:
        """Who touches what, and in which order."""
        disabled, said = self._disabled_indices, self.definition.independents
        levels = insides(self.definition, self.nodes, self._unwaited)
        unwaited = [((source,), (target,)) for source, target in self._unwaited]  # another rule says all about these
        sides = [*((each.one, each.other) for each in said), *unwaited]
        return Audit(self.nodes, levels, self.values, self._addresses, disabled, sides, errors_only=self.errors_only)

    @property
    def _addresses(self) -> dict[Buffer, int]:
        buffers = (operand for operand in self.definition.operands.values() if isinstance(operand, Buffer))
        return {buffer: buffer.address for buffer in buffers if buffer.address is not None}

    @cached_property
    def _unwaited(self) -> set[tuple[str, str]]:
        """Programmatic edges, by the names of their nodes, of which the target is known to call for no wait."""
        return {
            (source.name, target.name)
            for source, target, edge in self.programmatic_edges
            if edge["port"] == "programmatic"
            and isinstance(source, KernelNode)
            and isinstance(target, KernelNode)
            and (image := self.image_of.get(target.name)) is not None
            and image.graph_calls.waits is False
        }

    @cached_property
    def launch_roles(self) -> dict[Buffer, Role]:
        """What the arrays that are declared to be there during a launch alone are to the graph."""
        wanted = [
            each for each in self.definition.operands.values() if isinstance(each, Buffer) and each.lifetime == "launch"
        ]
        return roles(self.nodes, insides(self.definition, self.nodes), wanted) if wanted else {}

    def holders(self, node: Node) -> Iterator[Node]:
        """A node, the node whose body it stands in, the one that holds that, and so on outwards."""
        at: Node | None = node
        while at is not None:
            yield at
            at = self._owners.get(id(at.definition))

    @cached_property
    def _owners(self) -> dict[int, Node]:
        """The node that each body belongs to, by the identity of the body."""
        return {id(body): node for node in self.nodes for body in node.bodies}

    def of_kind(self, *kinds: type[NodeType]) -> list[NodeType]:
        """The nodes of some kinds, kind by kind."""
        return [node for kind in kinds for node in self._by_type.get(kind, ())]

    @cached_property
    def programmatic_edges(self) -> list[tuple[Node, Node, dict[str, Any]]]:
        """The edges of all levels that are not full: their ends, and their attributes in the DAG."""
        return [
            (level.dag.nodes[source]["node"], level.dag.nodes[target]["node"], edge)
            for level in self.levels
            for source, targets in level.dag.adjacency()
            for target, edge in targets.items()
            if edge["port"] != "default"
        ]

    # Operands

    @cached_property
    def arguments(self) -> dict[int, Any]:
        """Each distinct argument of the kernels, by identity."""
        args = [arg for node in self.kernels for arg in node.args]
        return dict(zip(map(id, args), args, strict=True))

    @cached_property
    def attributed(self) -> list[tuple[KernelNode, LaunchAttributes]]:
        """The kernel nodes that have launch attributes, with these."""
        return [(node, node.attributes) for node in self.kernels if node.attributes is not None]

    @cached_property
    def operands(self) -> dict[int, Any]:
        """Each distinct array, expression and event that a node uses, by identity."""
        kernels = self.kernels
        dims = {node.grid for node in kernels} | {node.block for node in kernels}
        launched = (*leaves(dims), *{node.shared_bytes for node in kernels})
        windows = (node.window for node, _ in self.attributed)
        others = (use.operand for use in uses_of(node for node in self.nodes if not isinstance(node, KernelNode)))
        operands = (*launched, *leaves(self.arguments.values()), *windows, *others)
        return {id(operand): operand for operand in operands if isinstance(operand, (Array, Expr, Event))}

    @cached_property
    def arrays(self) -> list[Array]:
        """Each distinct array that a node uses."""
        return [operand for operand in self.operands.values() if isinstance(operand, Array)]

    def uses(self, wanted: Iterable[int], nodes: Iterable[Node] | None = None) -> Iterator[Use]:
        """Every use by ``nodes``, all by default, of an operand whose identity is among ``wanted``."""
        identities = set(wanted)
        if identities:
            yield from (use for use in uses_of(self.nodes if nodes is None else nodes) if id(use.operand) in identities)

    # Values

    def value(self, operand: Any) -> Any:
        """The value of a number or expression; None if it has none: a param is unset, or it divides by zero."""
        if type(operand) is int or not isinstance(operand, Expr):
            return operand
        if isinstance(operand, Condition):  # its handle is the driver's to give
            return None
        try:
            return self._evaluated[operand]
        except KeyError:
            value = self._evaluated[operand] = self._evaluate(operand)
            return value

    def _evaluate(self, expr: Expr) -> Any:
        if not expr.params <= self._known:
            self._known |= {param for param in expr.params if param.name in self.values and self.owns(param)}
            if not expr.params <= self._known:
                return None
        try:
            value = expr.evaluate(self.values, self._memo)
            if not isinstance(value, int) or value.bit_length() <= _MOST_BITS:
                return value
            self.failures[expr] = f"is {text_of(value)}"
        except ZeroDivisionError:
            self.failures[expr] = "divides by zero"
        except (ArithmeticError, ValueError) as problem:
            self.failures[expr] = f"has none: {problem}"
        return None

    def owns(self, operand: Operand) -> bool:
        """True if the operand was declared in this graph."""
        return operand.definition is self.definition.root

    def origin(self, *operands: Any) -> str:
        """Where a value comes from, as a sentence; empty if no expression stands behind it.

        Examples
        --------
        >>> import numpy as np
        >>> from graphdsl.declare.targets import targets_of
        >>> graph = Definition()
        >>> n = graph.param("n", np.int32, default=0)
        >>> Context.of_graph(graph, targets_of("sm_90"), {}).origin(n * 4)
        'It is (n * 4), and n = 0.'
        """
        params: set[Param] = set().union(*(getattr(operand, "params", ()) for operand in operands))
        known = [f"{param} = {self.values[param.name]}" for param in params if param.name in self.values]
        if not known:
            return ""
        written = str(operands[0]) if len(operands) == 1 else f"({', '.join(map(str, operands))})"
        return f"It is {written}, and {', '.join(sorted(known))}."

    # Memory

    @cached_property
    def broken_views(self) -> dict[int, tuple[View, Bounds]]:
        """Views that reach outside what was sliced, by identity, with the first bounds that do."""
        found = {}
        for array in self.arrays:
            broken = self.broken_bounds(array) if isinstance(array, View) else None
            if broken is not None:
                found[id(array)] = (array, broken)
        return found  # type: ignore[return-value]

    def broken_bounds(self, view: View) -> Bounds | None:
        """The first bounds of a view that do not hold, evaluated."""
        for axis, *extents in view.bounds:
            start, stop, extent = map(self.value, extents)
            if None not in (start, stop, extent) and not 0 <= start <= stop <= extent:
                return Bounds(axis, start, stop, extent)
        return None

    def region(self, array: Array) -> Region | None:
        """The bytes of an array; None if an expression has no value, or if it is a view outside its buffer."""
        try:
            return self._regions[id(array)]
        except KeyError:
            found = self._regions[id(array)] = self._region(array)
            return found

    def _region(self, array: Array) -> Region | None:
        if isinstance(array, View) and self.broken_bounds(array) is not None:
            return None
        offset, *shape = (self.value(extent) for extent in (array.offset, *array.shape))
        if offset is None or None in shape:
            return None
        return Region(offset, tuple(shape), math.prod(shape) * array.dtype.itemsize)

    def dimensions(self, node: MemcpyNode | MemsetNode) -> tuple[Dimension, ...] | None:
        """What a node copies or sets as rows of bytes, evaluated; None if that is not known.

        So it is where an expression has no value, a view is broken, or the sides of a copy do not agree.
        """
        try:
            return self._dimensions[node.name]
        except KeyError:
            found = self._dimensions[node.name] = self._evaluated_dimensions(node)
            return found

    def _evaluated_dimensions(self, node: MemcpyNode | MemsetNode) -> tuple[Dimension, ...] | None:
        arrays = (node.destination, node.source) if isinstance(node, MemcpyNode) else (node.destination,)
        regions = [self.region(array) for array in arrays]
        alike = {(array.dtype.itemsize, region.shape) for array, region in zip(arrays, regions, strict=True) if region}
        given = isinstance(node, MemcpyNode) and node.nbytes is not None
        if None in regions or (len(alike) != 1 and not given):
            return None
        found = tuple(Dimension(self.value(extent), strides) for extent, strides in node.dimensions)
        return None if any(extent is None for extent, _ in found) else found

    # Kernels

    @cached_property
    def groups(self) -> list[KernelGroup]:
        """The kernel nodes whose number of arguments is right, gathered by what is compiled for them."""
        # Kinds are numbered, since small numbers make short work of the keys below.
        numbers: dict[Any, int] = {}
        kinds = {identity: numbers.setdefault(_kind(arg), len(numbers)) for identity, arg in self.arguments.items()}
        kind_of = kinds.__getitem__
        images = self._images or {}
        alike: dict[Any, list[KernelNode]] = {}
        for node in self.kernels:
            kernel = node.kernel
            if kernel.counted and len(node.args) != len(kernel.parameters):
                continue
            signature = node.signature if isinstance(node.signature, str) else id(node.signature)
            key = (kernel, signature, images.get(node.name), *map(kind_of, map(id, node.args)))
            alike.setdefault(key, []).append(node)
        groups = [KernelGroup(nodes) for nodes in alike.values()]
        for group in groups:
            self._resolve(group)
        return groups

    def _resolve(self, group: KernelGroup) -> None:
        """Find types, layout and image of a group, or why there are none."""
        # Numba takes about a second to import, and a graph without kernels needs nothing of it.
        from graphdsl.compile.signature import argument_types, parameter_layout

        first = group.nodes[0]
        group.image = (self._images or {}).get(first.name)
        if isinstance(first.kernel, SourceKernel):
            target = self.limits.compute_capability if self._compile else None
            source_groups.resolve(group, first.kernel, target, self._codes)
            return
        try:
            group.types = argument_types(first.kernel, first.args, signature=_signature(first, group.image))
            group.layout = parameter_layout(group.types, first.kernel.parameters)
        except CompileError as problem:
            group.type_error = problem
            return
        # More parameters than a kernel can have do not compile, and are reported as such.
        if self._compile and group.layout.nbytes <= self.limits.parameter_bytes:
            self._compile_group(group)

    def type_errors(self, node: KernelNode, group: KernelGroup) -> list[CompileError]:
        """All that is wrong with the types of the arguments of a node, in terms of its own operands."""
        from graphdsl.compile.signature import argument_errors

        if isinstance(node.kernel, SourceKernel):
            return source_groups.type_errors(node, group, self._codes)
        return argument_errors(node.kernel, node.args, signature=_signature(node, group.image))

    def _compile_group(self, group: KernelGroup) -> None:
        # Groups told apart by the values of literals may have the same types: what fails is compiled once, too.
        key = (group.nodes[0].kernel, group.types)
        if key not in self._compiled:
            self._compiled[key] = self._image_or_error(group)
        made = self._compiled[key]
        if isinstance(made, CompileError):
            group.compile_error = made
        else:
            group.image = made

    def _image_or_error(self, group: KernelGroup) -> KernelImage | CompileError:
        from graphdsl.compile.numba import compile_kernel

        first = group.nodes[0]
        assert group.types is not None, first
        try:
            return compile_kernel(
                first.kernel, group.types, self.limits.compute_capability, node=first.name, location=first.location
            )
        except CompileError as problem:
            return problem

    @cached_property
    def image_of(self) -> dict[str, KernelImage]:
        """The compiled kernel of each kernel node that has one, by the node's name."""
        groups = (group for part in self.by_device for group in part.groups)
        return {node.name: group.image for group in groups if group.image for node in group.nodes}

    @cached_property
    def launches(self) -> list[Launch]:
        """The launches of the kernel nodes, equal ones gathered."""
        group_of = {node.name: group for group in self.groups if group.image for node in group.nodes}
        alike: dict[Any, list[KernelNode]] = {}
        for node in self.kernels:
            group = group_of.get(node.name)
            alike.setdefault((node.grid, node.block, node.shared_bytes, node.attributes, group), []).append(node)
        return [self._launch(nodes, key[-1]) for key, nodes in alike.items()]

    def _launch(self, nodes: list[KernelNode], group: KernelGroup | None) -> Launch:
        first = nodes[0]
        image = group.image if group else None
        dims = self._dims(first.grid), self._dims(first.block)
        return Launch(nodes, *dims, self.value(first.shared_bytes), image, first.attributes)

    def _dims(self, dims: Dim3) -> tuple[int | None, ...]:
        x, y, z = dims
        if type(x) is int and type(y) is int and type(z) is int:
            return x, y, z
        return self.value(x), self.value(y), self.value(z)


def _signature(node: KernelNode, image: KernelImage | None) -> Any:
    """What arguments must fit: the types that the kernel is compiled for, if it is, else what the node declares."""
    return node.signature if image is None else image.layout.types


def _param_values(definition: Definition, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, GraphdslError]]:
    """Values of the params that have one that fits, and why others do not fit."""
    values: dict[str, Any] = {}
    misfits: dict[str, GraphdslError] = {}
    for name, param in definition.operands.items():
        if not isinstance(param, Param):
            continue
        if name not in given:
            if param.default is not None:
                values[name] = param.default
            continue
        try:
            values[name] = convert_scalar(given[name], param.dtype, field=name)
        except GraphdslError as problem:
            misfits[name] = problem
    return values, misfits


def _kind(arg: Any) -> Any:
    """A key that is equal for arguments whose types are found alike, and that many nodes can share.

    A signature is held against the values of literals, so numbers are told apart as far as ranges of dtypes do.
    """
    if isinstance(arg, Array):
        return arg.dtype, arg.ndim, arg.layout, arg.buffer.readonly
    if isinstance(arg, (Expr, np.void)):
        return arg.dtype
    kind = type(arg)
    if kind is int:
        return kind, arg < 0, (~arg if arg < 0 else arg).bit_length()
    if kind is float and -_SMALLEST_MAX <= arg <= _SMALLEST_MAX:
        return kind
    if isinstance(arg, tuple):
        return kind, *map(_kind, arg)
    try:  # what says that it is hashable may still not be, such as a structure of ctypes
        hash(arg)
    except TypeError:
        return kind, id(arg)
    return kind, arg


_MOST_BITS = 1024
"""Of an integer that is worth judging: no dtype holds as many, and messages must not fill pages."""

_SMALLEST_MAX = 65504.0
"""What every floating-point dtype holds: the largest float16."""
