"""Tests of graphs: does the result depend on an order that no edge asks for, or on what padding holds?

`assert_order_independent` runs a graph on the emulator in many orders, and names the two nodes that an edge is missing
between. `assert_padding_safe` runs graphs of buckets with poison in what a request does not fill. Nothing of it is
needed to run graphs.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from graphdsl.declare.definition import Definition
from graphdsl.declare.limits import DEFAULT_CAPABILITY
from graphdsl.declare.store import unknown_name
from graphdsl.errors import DeclarationError
from graphdsl.testing.blame import closest, not_repeatable, order_error
from graphdsl.testing.differences import Comparison, Tolerance
from graphdsl.testing.inputs import random_inputs
from graphdsl.testing.orders import IDLE, Rank, Step, drawn, every_order, following, preorder
from graphdsl.testing.padding import TriedPadding, assert_padding_safe
from graphdsl.testing.trial import Outcome, Trial

if TYPE_CHECKING:
    from graphdsl.declare.limits import Target

__all__ = ["TriedOrders", "TriedPadding", "assert_order_independent", "assert_padding_safe", "random_inputs"]


class TriedOrders(NamedTuple):
    """What a graph was held to.

    Attributes
    ----------
    orders : int
        How many orders it ran in; one that came twice counts once.
    all : bool
        True if there are no more.
    """

    orders: int
    all: bool

    def __str__(self) -> str:
        if self.all:
            return f"all of its {self.orders} orders" if self.orders > 1 else "its only order"
        return f"{self.orders} of its orders"


def assert_order_independent(
    graph: Definition,
    inputs: Mapping[str, Any] | None = None,
    *,
    outputs: Iterable[str] | None = None,
    orders: int = 200,
    seed: int = 0,
    values: Mapping[str, Any] | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    target: Target | list[Target] = DEFAULT_CAPABILITY,
) -> TriedOrders:
    """Run a graph on the emulator in many orders that its edges allow, and compare what comes of it.

    Each launch starts from the same memory: ``inputs`` are in place, and what nobody has written counts as never
    written. Nodes inside of children and of bodies run beside those outside, as on a GPU. First comes the order of the
    declaration; then all others, where there are no more than ``orders``. Else comes the reverse of the declaration,
    and then orders drawn by lot, in each of which another node runs as late as it can, behind all nodes that it is not
    ordered with: once there are as many orders as nodes, any two nodes that may run both ways have done so.

    Where two orders differ, orders between them are tried until two are left that swap two neighbours and nothing else.
    These two nodes are to blame.

    Parameters
    ----------
    graph : Graph
        The graph. It is not changed.
    inputs : dict of str to array_like, optional
        What arrays hold before each launch, by name: host, device and external arrays, broadcast to their shapes.
        External memory of the host holds what it does anyway; for that of a device stands memory of the emulator.
    outputs : iterable of str, optional
        Names of the arrays that are compared; by default all that the graph has, those that only carry something from
        one node to the next too.
    orders : int
        How many orders to run in at most.
    seed : int
        Of the orders that are drawn.
    values : dict of str to number, optional
        Values of params by name, instead of their defaults.
    rtol, atol : float
        How far floating-point outputs may be apart, as `numpy.isclose` takes it; by default all bytes must be equal.
        Sums by atomic additions of floats need it: their order is free.
    target : str, tuple of int, Limits, or list of them
        Which device the emulator stands for.

    Returns
    -------
    TriedOrders
        How many orders the graph ran in, and whether these are all.

    Raises
    ------
    OrderError
        If two orders give different results, or a node fails in one of them. It is an `AssertionError` too, and has as
        attributes the nodes, the edge that is missing, and what differs.
    DriverError, CallbackError
        If a node fails in every order.
    GraphdslError
        If two launches in one order differ: something outside of the graph's memory, such as what a host node keeps,
        is carried from one launch to the next.

    Notes
    -----
    Kernels run in Python: keep arrays small. External memory of the host holds at the end what it held before.
    A kernel with a programmatic edge to one behind it runs before that one, or in its wait.
    What a host node keeps outside of its arrays is not put back between launches.

    Examples
    --------
    >>> import numpy as np
    >>> import graphdsl as gd
    >>> g = gd.Graph("pair")
    >>> x, y = (g.device_array(name, 4, np.float32) for name in "xy")
    >>> raw = g.host_array("raw", 4, np.float32)
    >>> clear, load = g.memset(x, 0, name="clear"), g.memcpy(x, raw, name="load")
    >>> move = g.memcpy(y, x, name="move")
    >>> _ = [clear, load] >> move
    >>> try:
    ...     gd.testing.assert_order_independent(g, {"raw": [1, 2, 3, 4]})
    ... except gd.OrderError as problem:
    ...     print(problem.nodes, problem.buffer, problem.index, problem.values)
    ('clear', 'load') x (0,) (1.0, 0.0)
    >>> _ = clear >> load
    >>> print(gd.testing.assert_order_independent(g, {"raw": [1, 2, 3, 4]}))
    its only order
    """
    if orders < 1:
        raise DeclarationError("a graph runs in one order at least", field="orders", value=orders)
    with Trial(graph, inputs or {}, values, target) as trial:
        comparison = Comparison(trial.buffers, _outputs(trial, outputs), Tolerance(rtol, atol))
        numbers = {node.name: number for number, node in enumerate(preorder(graph))}

        def declared(step: Step) -> int:
            return numbers[step[0]]

        first = trial.run(declared)
        every = _every_order(graph, first, orders)
        # The last of all is the reverse of the declaration, which differs from it most.
        ranks = (
            _drawn(graph, numbers, first, orders, seed)
            if every is None
            else map(partial(following, rest=-1), reversed(every))
        )
        exhaustive, seen = every is not None, {tuple(first.order)}
        for rank in ranks:
            outcome = trial.run(rank)
            seen.add(tuple(outcome.order))
            if not comparison.same(first, outcome):
                again = trial.run(declared)
                if not comparison.same(first, again):
                    raise not_repeatable(graph, first, again, comparison)
                raise order_error(graph, trial, closest(trial, first, outcome, comparison), comparison)
            # A condition may have chosen other bodies, which came to the same: then there are more orders.
            exhaustive &= Counter(outcome.order) == Counter(first.order)
        if first.failure is not None:
            raise first.failure
    return TriedOrders(len(every) if every else len(seen), exhaustive)


def _outputs(trial: Trial, names: Iterable[str] | None) -> list[str]:
    """The buffers to compare."""
    known = [name for name, buffer in trial.buffers.items() if not buffer.allocated]
    if names is None:
        return known
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in known:
            raise unknown_name(name, known, "array", DeclarationError)
    return wanted


def _every_order(graph: Definition, first: Outcome, most: int) -> list[list[Step]] | None:
    """All orders, if there are no more than that, and it can be told from one launch which nodes run in them."""
    if first.failure is not None or any(turn for _, turn in first.order):
        return None
    return every_order(graph, {name for name, _ in first.order}, most)


def _drawn(graph: Definition, numbers: Mapping[str, int], first: Outcome, orders: int, seed: int) -> Iterator[Rank]:
    """The reverse of the declaration, and orders drawn by lot, in each of which another node comes late."""
    rng = random.Random(seed)
    if orders > 1:
        yield lambda step: -numbers[step[0]]
    ran = [name for name in dict.fromkeys(name for name, _ in first.order) if graph.node(name).kind not in IDLE]
    rng.shuffle(ran)
    for _, late in zip(range(orders - 2), itertools.cycle(ran or [None])):
        yield drawn(rng, late)
