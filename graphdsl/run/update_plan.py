"""What an update of a set of names touches: found out once, and kept for the next update of the same names.

This module must not change anything: `graphdsl.run.update` writes values, `graphdsl.run.send` sends them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdsl.declare.expressions import Expr
from graphdsl.declare.node import Node
from graphdsl.declare.nodes import named_operands
from graphdsl.declare.scalars import scalar_converter
from graphdsl.errors import UpdateError
from graphdsl.run.derived import Site, names_of
from graphdsl.run.packing import Packing
from graphdsl.run.send import Batch, Indices
from graphdsl.run.shadow import BOUND

MOST_PLANS = 256  # of each exec; sets of names that are updated together are few, unless they are drawn at random


@dataclass(frozen=True, eq=False)
class Group:
    """Sites that hold one value: equal expressions stored with one dtype.

    Attributes
    ----------
    value : Expr
        What they follow from.
    field : str
        What messages call them.
    convert : callable
        Gives the value as the dtype of the sites holds it.
    view : numpy.ndarray
        The arena as the dtype of the sites.
    first : int
        Index of the first site in ``view``; the others hold the same.
    places : int or numpy.ndarray of int
        Indices of all of them.
    nodes : numpy.ndarray of int
        The nodes that the sites belong to.
    rules : set of str
        Which rules a new value must keep, see `Site`.
    signed_zero : bool
        True if the dtype tells 0.0 from -0.0, which are equal.
    """

    value: Expr
    field: str
    convert: Callable[[Any], Any]
    view: np.ndarray[Any, Any]
    first: int
    places: Any
    nodes: Indices
    rules: frozenset[str]
    signed_zero: bool


@dataclass(frozen=True, eq=False)
class UpdatePlan:
    """What an update of a set of names touches.

    Attributes
    ----------
    groups : tuple of Group
        The values that follow from the names.
    launches : tuple of int
        One kernel node for each distinct launch that follows from the names.
    nodes : tuple of int
        Nodes that must be held to all rules.
    bound : tuple of int
        Host and captured nodes with arguments that follow from the names.
    batches : dict
        Nodes to send, by which of the groups changed.
    """

    groups: tuple[Group, ...]
    launches: tuple[int, ...]
    nodes: tuple[int, ...]
    bound: tuple[int, ...]
    batches: dict[tuple[bool, ...], Batch]

    @property
    def ruled(self) -> bool:
        """True if a new value has rules to keep besides fitting its dtype."""
        return bool(self.launches or self.nodes)


class UpdatePlans:
    """The plans of an exec; ``nodes`` is the list that updates change, and `clear` must be called when they do."""

    def __init__(self, nodes: Sequence[Node], packing: Packing) -> None:
        self._nodes = nodes
        self._packing = packing
        self._plans: dict[tuple[str, ...], UpdatePlan] = {}
        self._views: dict[np.dtype[Any], np.ndarray[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def clear(self) -> None:
        """Forget all plans: a node has other fields now."""
        self._plans.clear()

    def of(self, names: Collection[str]) -> UpdatePlan:
        """The plan of an update of these names."""
        key = tuple(sorted(names)) if len(names) > 1 else tuple(names)
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            found = self._plans[key] = self._made(frozenset(names))
        return found

    def _made(self, names: frozenset[str]) -> UpdatePlan:
        sites: dict[tuple[Expr, np.dtype[Any]], list[tuple[int, Site]]] = defaultdict(list)
        launches: dict[Any, int] = {}
        nodes = set()
        for index in range(len(self._nodes)):
            for site in self._packing.sites(index):
                if names_of(site.value) & names:
                    sites[site.value, site.dtype].append((index, site))
                    if site.rules == "launch":
                        launches.setdefault(self._launch_key(index), index)
                    elif site.rules == "node":
                        nodes.add(index)
        groups = tuple(self._group(value, dtype, found) for (value, dtype), found in sites.items())
        bound = tuple(
            index
            for index, node in enumerate(self._nodes)
            if isinstance(node, BOUND) and any(name in names for name, _ in named_operands(node))
        )
        return UpdatePlan(groups, tuple(launches.values()), tuple(sorted(nodes)), bound, {})

    def _launch_key(self, index: int) -> Any:
        node: Any = self._nodes[index]
        return node.grid, node.block, node.shared_bytes, node.attributes, self._packing.kernels[index]

    def _group(self, value: Expr, dtype: np.dtype[Any], found: list[tuple[int, Site]]) -> Group:
        if dtype not in self._views:
            arena = self._packing.arena
            whole = len(arena) // dtype.itemsize * dtype.itemsize
            self._views[dtype] = arena[:whole].view(dtype)
        places = [site.offset // dtype.itemsize for _, site in found]
        field = found[0][1].field
        return Group(
            value,
            field,
            scalar_converter(dtype, field=field, error=UpdateError),
            self._views[dtype],
            places[0],
            places[0] if len(places) == 1 else np.array(places),
            np.array([index for index, _ in found]),
            frozenset(site.rules for _, site in found) - {"none"},
            dtype.kind == "f",
        )
