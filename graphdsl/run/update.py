"""Changes parameters of an exec: by the names of params and buffers, or node by node.

An update is atomic (invariant I5): values are converted and checked before the driver hears of them; if the driver
refuses in the middle, what was sent is set back; if that fails too, the exec is unusable. The driver is never asked
for what was set: the arena and the nodes kept here are the shadow of all of it. What a set of names touches is found
by `graphdsl.run.update_plan`; the driver is called by `graphdsl.run.send`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from graphdsl.check import Finding, check_nodes, launch_fits
from graphdsl.declare.expressions import Expr, Param, scalar_converter
from graphdsl.declare.nodes import HostNode, KernelNode, Node
from graphdsl.drivers.base import Driver
from graphdsl.errors import DriverError, ExecUnusableError, UpdateError
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.changes import require_can_disable, require_kept
from graphdsl.run.derived import evaluated
from graphdsl.run.modules import LoadedKernel
from graphdsl.run.packing import Packing, Slot
from graphdsl.run.send import Batch, Indices, Sender
from graphdsl.run.templates import Shared
from graphdsl.run.update_plan import MOST_PLANS, Group, UpdatePlan, UpdatePlans

Release = Callable[[], None]


class Direct(NamedTuple):
    """The short way of a param that stands by itself in kernel arguments, and nowhere else."""

    convert: Callable[[Any], Any]
    group: Group
    batch: Batch


class Number(NamedTuple):
    """The short way of an argument of one kernel node that is a number: its place, how it is converted and stored."""

    argument: int
    convert: Callable[[Any], Any]
    slot: Slot


_NUMBERS = frozenset((int, float, bool))


class Allowance(NamedTuple):
    """Dynamic shared memory that a kernel must be allowed before a node of it is set."""

    kernel: LoadedKernel
    nbytes: int

    @property
    def is_needed(self) -> bool:
        """True if the driver must be told."""
        return self.nbytes > self.kernel.allowed_shared_bytes

    def grant(self) -> None:
        """Tell the driver if need be."""
        self.kernel.allow_shared_bytes(self.nbytes)


class Preview(NamedTuple):
    """What an update would do.

    Attributes
    ----------
    indices : list of int
        The nodes that would be sent to the driver.
    raised : list of Allowance
        Kernels that would be allowed more dynamic shared memory.
    direct : bool
        True if `Updater.update_param` could do it.
    """

    indices: list[int]
    raised: list[Allowance]
    direct: bool


class Updater:
    """The shadow of an exec, and the ways to change it.

    Attributes
    ----------
    nodes : list of Node
        The nodes as they are set now.
    values : dict of str to number
        The value of each param and the address of each buffer, by name.
    enabled : list of bool
        False for each node that was disabled.
    sender : Sender
        The way to the driver.
    """

    def __init__(
        self, nodes: Sequence[Node], values: dict[str, Any], packing: Packing, device: Driver, hosts: HostCalls
    ) -> None:
        self.nodes = list(nodes)
        self.values = values
        self.enabled = [True] * len(self.nodes)
        self.sender = Sender(self.nodes, packing, device)
        self._packing = packing
        self._device = device
        self._hosts = hosts
        self._tokens: dict[int, int] = {}
        self._plans = UpdatePlans(self.nodes, packing)
        self._numbers: dict[int, dict[str, Number]] = {}
        self._directs: dict[str, Direct | None] = {}

    def bind_hosts(self) -> None:
        """Register the call of every host node; done once, before the graph is built."""
        for index, node in enumerate(self.nodes):
            if isinstance(node, HostNode):
                self._tokens[index] = self._hosts.bind(node, self.values)
        self._write_hosts(self._tokens)

    # By name

    def update(self, changes: Mapping[str, Any]) -> list[Release]:
        """Set params and buffer addresses by name; gives what to release once no launch uses it.

        Parameters
        ----------
        changes : dict of str to number
            Converted values of params, addresses of buffers. Equal values cost nothing.

        Raises
        ------
        UpdateError
            If a value that follows is not allowed; nothing has changed.
        DriverError
            If the driver refused; what was sent has been set back.
        """
        before = self._before(changes)
        if not before:
            return []
        values = self.values
        for name in before:
            values[name] = changes[name]
        try:
            return self._apply(self._plans.of(before), before)
        except BaseException:
            values.update(before)
            raise

    def preview(self, changes: Mapping[str, Any]) -> Preview:
        """What `update` would do; raises what it would, as far as that is known without the driver.

        Nothing changes: what is written is put back, and the driver hears of nothing.
        """
        values = self.values
        before = self._before(changes)
        if not before:
            return Preview([], [], False)
        values.update(changes)
        written: list[tuple[Group, Any]] = []
        try:
            plan = self._plans.of(before)
            changed, raised = self._prepare(plan, before, written)
            direct = len(before) == 1 and self._direct(*before) is not None
            indices = self._indices(plan, changed) if written or plan.hosts else np.zeros(0, np.int64)
            return Preview(indices.tolist(), [part for part in raised if part.is_needed], direct)
        finally:
            self._restore(written, {})
            values.update(before)

    def _before(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The values now of the names that change."""
        values = self.values
        # A zero is never taken for equal: 0.0 and -0.0 are not the same bytes.
        return {name: values.get(name) for name, value in changes.items() if not value or values.get(name) != value}

    def update_param(self, name: str, value: Any) -> bool:
        """Set one param; the short way, for one that stands by itself in kernel arguments and nowhere else.

        Such a param can break no rule but that of its type. False if this way is not open; then nothing has changed.
        """
        try:
            direct = self._directs[name]
        except KeyError:
            direct = self._directs[name] = self._direct(name)
        if direct is None:
            return False
        convert, group, batch = direct
        new = convert(value)
        values = self.values
        if new and values[name] == new:
            return True
        before = group.view[group.first]
        group.view[group.places] = new
        _, kinds, handles, params = batch
        try:
            self.sender.set_params(kinds, handles, params)
        except DriverError as problem:
            self.sender.recover(problem, batch, lambda: self._restore([(group, before)], {}))
        values[name] = new
        return True

    def _direct(self, name: str) -> Direct | None:
        if name not in self.values:
            return None
        plan = self._plans.of((name,))
        if len(plan.groups) != 1 or plan.ruled or plan.hosts:
            return None
        (group,) = plan.groups
        if not isinstance(group.value, Param) or group.value.dtype != group.view.dtype:
            return None
        convert = scalar_converter(group.value.dtype, field=name, error=UpdateError)
        return Direct(convert, group, self._make_batch(plan, (True,)))

    def _apply(self, plan: UpdatePlan, before: Mapping[str, Any]) -> list[Release]:
        written: list[tuple[Group, Any]] = []
        tokens: dict[int, int] = {}
        try:
            changed, allowances = self._prepare(plan, before, written)
            for allowance in allowances:
                allowance.grant()
            if plan.hosts:
                tokens = {index: self._hosts.bind(self._host_node(index), self.values) for index in plan.hosts}
                self._write_hosts(tokens)
            if written or tokens:
                batch = plan.batches.get(changed) or self._make_batch(plan, changed)
                self.sender.send(batch, lambda: self._restore(written, tokens))
        except ExecUnusableError:
            raise
        except BaseException:
            self._restore(written, tokens)
            for token in tokens.values():
                self._hosts.release(token)
            raise
        return self._replace_tokens(tokens) if tokens else []

    def _prepare(
        self, plan: UpdatePlan, before: Mapping[str, Any], written: list[tuple[Group, Any]]
    ) -> tuple[tuple[bool, ...], list[Allowance]]:
        """Write the values that follow and hold them to the rules; see `_write` and `_require_allowed`."""
        changed = self._write(plan, written)
        allowances = self._require_allowed(plan, before, written) if plan.ruled else []
        if plan.hosts:
            self._require_valid(plan.hosts)
        return changed, allowances

    def _write(self, plan: UpdatePlan, written: list[tuple[Group, Any]]) -> tuple[bool, ...]:
        """Write the values that follow into the arena; tells for each group whether it changed.

        All are evaluated before the first is written; ``written`` takes what was there before.
        """
        memo: dict[Expr, Any] = {}
        try:
            found = [self._evaluate(group, memo) for group in plan.groups]
        except UpdateError:
            # A value that no struct can hold: a rule says it better, in the user's terms.
            self._require_valid((*plan.launches, *plan.nodes))
            raise
        changed = []
        for group, value in zip(plan.groups, found, strict=True):
            before = group.view[group.first]
            differs = bool(before != value) or (group.signed_zero and not value)
            changed.append(differs)
            if differs:
                group.view[group.places] = value
                written.append((group, before))
        return tuple(changed)

    def _evaluate(self, group: Group, memo: dict[Expr, Any]) -> Any:
        try:
            return group.convert(group.value.evaluate(self.values, memo))
        except (ArithmeticError, UpdateError):  # the long way names the node, or knows what the short one does not
            first = self.nodes[int(group.nodes[0])]
            return evaluated(group.value, group.view.dtype, first, group.field, self.values, memo)

    def _require_allowed(
        self, plan: UpdatePlan, before: Mapping[str, Any], written: Sequence[tuple[Group, Any]]
    ) -> list[Allowance]:
        """Hold what was written to the rules that its groups ask for; gives what launches must be allowed."""
        rules = {rule for group, _ in written for rule in group.rules}
        allowances = [self._require_launch(index) for index in plan.launches] if "launch" in rules else []
        if "node" in rules:
            self._require_valid(plan.nodes)
            old = ChainMap(before, self.values)  # type: ignore[arg-type]  # it is only read
            for index in plan.nodes:
                require_kept(self.nodes[index], self.nodes[index], old, self.values)
        return allowances

    def _require_launch(self, index: int) -> Allowance:
        kernel = self._packing.kernels[index]
        assert kernel is not None, index
        dims = self._packing.dims(index)
        if not launch_fits(dims, self._device.limits, kernel.image):
            self._require_valid([index])
        return Allowance(kernel, dims[-1])

    def _host_node(self, index: int) -> HostNode:
        node = self.nodes[index]
        assert isinstance(node, HostNode), node
        return node

    def _restore(self, written: Sequence[tuple[Group, Any]], tokens: Mapping[int, int]) -> None:
        for group, before in written:
            group.view[group.places] = before
        self._write_hosts({index: self._tokens[index] for index in tokens})

    def _make_batch(self, plan: UpdatePlan, changed: tuple[bool, ...]) -> Batch:
        if len(plan.batches) >= MOST_PLANS:
            plan.batches.clear()
        made = plan.batches[changed] = self.sender.batch(self._indices(plan, changed))
        return made

    def _indices(self, plan: UpdatePlan, changed: tuple[bool, ...]) -> Indices:
        """The nodes to send if these of the groups of a plan change."""
        parts = [group.nodes for group, differs in zip(plan.groups, changed, strict=True) if differs]
        return np.unique(np.concatenate([*parts, np.array(plan.hosts, np.int64)]))

    # Node by node

    def update_node(self, index: int, node: Node) -> list[Release]:
        """Set a node to other fields; gives what to release once no launch uses it."""
        tokens: dict[int, int] = {}
        with self._restoring(index, node) as restore:
            self._require_valid([index])
            try:
                if isinstance(node, HostNode):
                    tokens[index] = self._hosts.bind(node, self.values)
                    self._write_hosts(tokens)
                else:
                    self._packing.write(index, node, Shared(self.values))
                    if isinstance(node, KernelNode):
                        self._require_launch(index).grant()
                self.sender.send(self.sender.batch_of_one(index), restore)
            except BaseException:
                for token in tokens.values():
                    self._hosts.release(token)
                raise
        self._plans.clear()
        self._directs.clear()
        self._numbers.pop(index, None)
        return self._replace_tokens(tokens)

    def update_numbers(self, index: int, given: Mapping[str, Any]) -> bool:
        """Set arguments of a kernel node by the names of the kernel's parameters; the short way, for plain numbers.

        Numbers can break no rule but that of their type. False if something given is not one, or takes the place of
        what is not one; then nothing has changed.
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

        self.sender.send(self.sender.batch_of_one(index), restore)
        node: Any = self.nodes[index]
        args = list(node.args)
        for number, _, value in found:
            args[number.argument] = value
        node.args = tuple(args)  # a copy of our own since `_number`
        return True

    def _number(self, index: int, name: str) -> Number | None:
        """The short way of an argument; None if it is not a single number now."""
        node = self.nodes[index]
        assert isinstance(node, KernelNode), node
        argument = node.kernel.positions.get(name)
        if argument is None or type(node.args[argument]) not in _NUMBERS:
            return None
        slot = self._packing.slot(index, argument)
        if slot is None:
            return None
        if not self._numbers[index]:
            self.nodes[index] = node.replaced()  # the definition keeps its own
        field = f"argument {name!r}"
        convert = scalar_converter(slot.dtype, field=field, error=UpdateError, node=node.name, location=node.location)
        made = self._numbers[index][name] = Number(argument, convert, slot)
        return made

    @contextmanager
    def _restoring(self, index: int, node: Node) -> Iterator[Callable[[], None]]:
        """Puts a node in the place of another for as long as nothing fails; gives what puts the other back."""
        before, saved = self.nodes[index], self._packing.save(index)

        def restore() -> None:
            self.nodes[index] = before
            self._packing.restore(index, saved)
            if index in self._tokens:
                self._write_hosts({index: self._tokens[index]})

        self.nodes[index] = node
        try:
            yield restore
        except BaseException:
            restore()
            raise

    def set_enabled(self, index: int, enabled: bool) -> None:
        """Enable or disable a kernel, memcpy or memset node for the launches that follow."""
        require_can_disable(self.nodes[index], enabled)
        self.sender.set_enabled(index, enabled)
        self.enabled[index] = enabled

    # Host calls

    def _write_hosts(self, tokens: Mapping[int, int]) -> None:
        for index, token in tokens.items():
            self._packing.write_host(index, token)

    def _replace_tokens(self, tokens: Mapping[int, int]) -> list[Release]:
        replaced = [self._tokens[index] for index in tokens]
        self._tokens.update(tokens)
        return [lambda token=token: self._hosts.release(token) for token in replaced]  # type: ignore[misc]

    # To the driver

    def _require_valid(self, indices: Iterable[int]) -> None:
        """Refuse what a check would: the same rules, on the nodes touched, with the values as they would be."""
        indices = list(indices)
        touched = [self.nodes[index] for index in indices]
        images = {self.nodes[index].name: self._packing.images[index] for index in indices}
        errors = check_nodes(touched, values=self.values, limits=self._device.limits, images=images).errors
        if errors:
            raise _refused(errors)


def _refused(errors: Sequence[Finding]) -> UpdateError:
    first, *rest = errors
    others = "".join(f" Also: {finding.message}" for finding in rest[:9])
    return UpdateError(
        first.rule,
        node=first.node,
        field=first.field,
        value=first.value,
        remedy=f"{first.remedy or ''}{others}".strip() or None,
        location=first.location,
    )
