"""Changes an exec node by node: other fields, other numbers among its arguments.

What may change is said by `graphdsl.run.changes`; an update is atomic, as in `graphdsl.run.update`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from graphdsl.declare.node import Node
from graphdsl.declare.nodes import KernelNode
from graphdsl.declare.scalars import scalar_converter
from graphdsl.errors import UpdateError
from graphdsl.plan import Plan
from graphdsl.run.changes import require_kept
from graphdsl.run.fields import field_changes
from graphdsl.run.packing import Slot
from graphdsl.run.planned import require_planned_use, steers_planned
from graphdsl.run.send import Sender
from graphdsl.run.shadow import BOUND, Release, Shadow, Tokens
from graphdsl.run.templates import Shared


class Number(NamedTuple):
    """The short way of an argument of one kernel node that is a number: its place, how it is converted and stored."""

    argument: int
    convert: Callable[[Any], Any]
    slot: Slot


_NUMBERS = frozenset((int, float, bool))


class NodeUpdater:
    """Updates by node.

    Parameters
    ----------
    plan : Plan
        What the exec was built from.
    shadow : Shadow
        What is set in it.
    sender : Sender
        The way to the driver.
    forget : callable
        Called when a node has other fields than plans of updates by name know.
    """

    def __init__(self, plan: Plan, shadow: Shadow, sender: Sender, forget: Callable[[], None]) -> None:
        self._plan = plan
        self._shadow = shadow
        self._sender = sender
        self._forget = forget
        self._numbers: dict[int, dict[str, Number]] = {}

    def update(self, index: int, node: Node) -> list[Release]:
        """Set a node to other fields; gives what to release once no launch uses it."""
        shadow = self._shadow
        before = shadow.nodes[index]
        tokens: Tokens = {}
        with self._restoring(index, node) as restore:
            shadow.require_valid([index])
            require_kept(before, node, shadow.values, shadow.values)
            require_planned_use(self._plan, shadow.nodes, index, before)
            try:
                if isinstance(node, BOUND):
                    tokens = shadow.bind([index])
                else:
                    shadow.packing.write(index, node, Shared(shadow.values))
                    if isinstance(node, KernelNode):
                        allowance = shadow.require_launch(index)
                        if allowance is not None:
                            allowance.grant()
                self._sender.send(
                    self._sender.batch_of_one(index),
                    restore,
                    lambda _: field_changes(before, node, shadow.values, shadow.values),
                )
            except BaseException:
                shadow.unbind(tokens)
                raise
        self._forget()
        self._numbers.pop(index, None)
        return shadow.replace_bound(tokens)

    def update_numbers(self, index: int, given: Mapping[str, Any]) -> bool:
        """Set arguments of a kernel node by the names of the kernel's parameters; the short way, for plain numbers.

        Numbers can break no rule but that of their type. False if something given is not one, or takes the place of
        what is not one, or tells where planned arrays are touched; then nothing has changed.
        """
        known = self._numbers.setdefault(index, {})
        found = []
        for name, value in given.items():
            number = known.get(name) or self._number(index, name)
            if number is None or type(value) not in _NUMBERS:
                return False
            found.append((number, number.convert(value), value))
        before = [number.slot.read() for number, _, _ in found]
        for number, converted, _ in found:
            number.slot.write(converted)

        def restore() -> None:
            for (number, _, _), converted in zip(found, before, strict=True):
                number.slot.write(converted)

        node: Any = self._shadow.nodes[index]
        args = list(node.args)
        for number, _, value in found:
            args[number.argument] = value
        values = self._shadow.values
        self._sender.send(
            self._sender.batch_of_one(index),
            restore,
            lambda _: field_changes(node, node.replaced(args=tuple(args)), values, values),
        )
        node.args = tuple(args)  # a copy of our own since `_number`
        return True

    def _number(self, index: int, name: str) -> Number | None:
        """The short way of an argument; None if it is not a single number now."""
        node = self._shadow.nodes[index]
        assert isinstance(node, KernelNode), node
        argument = node.kernel.positions.get(name)
        if argument is None or type(node.args[argument]) not in _NUMBERS or node.kernel.divisor(argument) > 1:
            return None
        slot = self._shadow.packing.slot(index, argument)
        if slot is None or steers_planned(self._plan, node, argument):
            return None
        if not self._numbers[index]:
            self._shadow.nodes[index] = node.replaced()  # the definition keeps its own
        field = f"argument {name!r}"
        convert = scalar_converter(slot.dtype, field=field, error=UpdateError, node=node.name, location=node.location)
        made = self._numbers[index][name] = Number(argument, convert, slot)
        return made

    @contextmanager
    def _restoring(self, index: int, node: Node) -> Iterator[Callable[[], None]]:
        """Puts a node in the place of another for as long as nothing fails; gives what puts the other back."""
        before, saved = self._shadow.nodes[index], self._shadow.packing.save(index)

        def restore() -> None:
            self._shadow.nodes[index] = before
            self._shadow.packing.restore(index, saved)
            if isinstance(before, BOUND):
                self._shadow.restore_bound([index])

        self._shadow.nodes[index] = node
        try:
            yield restore
        except BaseException:
            restore()
            raise
