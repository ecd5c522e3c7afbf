"""Changes an exec by the names of params and buffers.

An update is atomic (invariant I5): values are converted and checked before the driver hears of them; if the driver
refuses in the middle, what was sent is set back; if that fails too, the exec is unusable. What a set of names touches
is found by `graphdsl.run.update_plan`; the driver is called by `graphdsl.run.send`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.expressions import Expr, Param
from graphdsl.declare.scalars import scalar_converter
from graphdsl.errors import DriverError, ExecUnusableError, UpdateError
from graphdsl.run.changes import require_kept
from graphdsl.run.derived import evaluated
from graphdsl.run.fields import FieldChange, field_changes
from graphdsl.run.send import Batch, Indices, Sender
from graphdsl.run.shadow import Allowance, Release, Shadow, Tokens
from graphdsl.run.update_plan import MOST_PLANS, Group, UpdatePlan, UpdatePlans


class Direct(NamedTuple):
    """The short way of a param that stands by itself in kernel arguments, and nowhere else."""

    convert: Callable[[Any], Any]
    group: Group
    batch: Batch


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
    """Updates by the names of params and buffers.

    Attributes
    ----------
    shadow : Shadow
        What is set.
    sender : Sender
        The way to the driver.
    """

    def __init__(self, shadow: Shadow, sender: Sender) -> None:
        self.shadow = shadow
        self.sender = sender
        self._values = shadow.values
        self._plans = UpdatePlans(shadow.nodes, shadow.packing)
        self._directs: dict[str, Direct | None] = {}

    def forget(self) -> None:
        """Forget what is known of the nodes: one has other fields now."""
        self._plans.clear()
        self._directs.clear()

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
        values = self._values
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
        values = self._values
        before = self._before(changes)
        if not before:
            return Preview([], [], False)
        values.update(changes)
        written: list[tuple[Group, Any]] = []
        try:
            plan = self._plans.of(before)
            changed, raised = self._prepare(plan, before, written)
            direct = len(before) == 1 and self._direct(*before) is not None
            indices = self._indices(plan, changed) if written or plan.bound else np.zeros(0, np.int64)
            return Preview(indices.tolist(), raised, direct)
        finally:
            self._restore(written, {})
            values.update(before)

    def _before(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The values now of the names that change."""
        values = self._values
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
        values = self._values
        if new and values[name] == new:
            return True
        before = group.view[group.first]
        group.view[group.places] = new
        _, kinds, handles, params = batch
        try:
            self.sender.set_params(kinds, handles, params)
        except DriverError as problem:
            after = {**values, name: new}
            self.sender.recover(
                problem,
                batch,
                lambda: self._restore([(group, before)], {}),
                lambda index: self._changes(index, values, after),
            )
        values[name] = new
        return True

    def _direct(self, name: str) -> Direct | None:
        if name not in self._values:
            return None
        plan = self._plans.of((name,))
        if len(plan.groups) != 1 or plan.ruled or plan.bound:
            return None
        (group,) = plan.groups
        if not isinstance(group.value, Param) or group.value.dtype != group.view.dtype:
            return None
        convert = scalar_converter(group.value.dtype, field=name, error=UpdateError)
        return Direct(convert, group, self._make_batch(plan, (True,)))

    def _apply(self, plan: UpdatePlan, before: Mapping[str, Any]) -> list[Release]:
        written: list[tuple[Group, Any]] = []
        tokens: Tokens = {}
        try:
            changed, allowances = self._prepare(plan, before, written)
            for allowance in allowances:
                allowance.grant()
            if plan.bound:
                tokens = self.shadow.bind(plan.bound)
            if written or tokens:
                batch = plan.batches.get(changed) or self._make_batch(plan, changed)
                old = ChainMap(before, self._values)  # type: ignore[arg-type]  # it is only read
                self.sender.send(
                    batch,
                    lambda: self._restore(written, tokens),
                    lambda index: self._changes(index, old, self._values),
                )
        except ExecUnusableError:
            raise
        except BaseException:
            self._restore(written, tokens)
            self.shadow.unbind(tokens)
            raise
        return self.shadow.replace_bound(tokens) if tokens else []

    def _prepare(
        self, plan: UpdatePlan, before: Mapping[str, Any], written: list[tuple[Group, Any]]
    ) -> tuple[tuple[bool, ...], list[Allowance]]:
        """Write the values that follow and hold them to the rules; see `_write` and `_require_allowed`."""
        changed = self._write(plan, written)
        allowances = self._require_allowed(plan, before, written) if plan.ruled else []
        if plan.bound:
            self.shadow.require_valid(plan.bound)
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
            self.shadow.require_valid((*plan.launches, *plan.nodes))
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
            return group.convert(group.value.evaluate(self._values, memo))
        except (ArithmeticError, UpdateError):  # the long way names the node, or knows what the short one does not
            first = self.shadow.nodes[int(group.nodes[0])]
            return evaluated(group.value, group.view.dtype, first, group.field, self._values, memo)

    def _require_allowed(
        self, plan: UpdatePlan, before: Mapping[str, Any], written: Sequence[tuple[Group, Any]]
    ) -> list[Allowance]:
        """Hold what was written to the rules that its groups ask for; gives what launches must be allowed."""
        rules = {rule for group, _ in written for rule in group.rules}
        allowances = []
        for index in plan.launches if "launch" in rules else ():
            allowance = self.shadow.require_launch(index)
            if allowance is not None:
                allowances.append(allowance)
        if "node" in rules:
            self.shadow.require_valid(plan.nodes)
            old = ChainMap(before, self._values)  # type: ignore[arg-type]  # it is only read
            for index in plan.nodes:
                require_kept(self.shadow.nodes[index], self.shadow.nodes[index], old, self._values)
        return allowances

    def _changes(self, index: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldChange, ...]:
        node = self.shadow.nodes[index]
        return field_changes(node, node, old, new)

    def _restore(self, written: Sequence[tuple[Group, Any]], tokens: Tokens) -> None:
        for group, before in written:
            group.view[group.places] = before
        self.shadow.restore_bound(tokens)

    def _make_batch(self, plan: UpdatePlan, changed: tuple[bool, ...]) -> Batch:
        if len(plan.batches) >= MOST_PLANS:
            plan.batches.clear()
        made = plan.batches[changed] = self.sender.batch(self._indices(plan, changed))
        return made

    def _indices(self, plan: UpdatePlan, changed: tuple[bool, ...]) -> Indices:
        """The nodes to send if these of the groups of a plan change."""
        parts = [group.nodes for group, differs in zip(plan.groups, changed, strict=True) if differs]
        return np.unique(np.concatenate([*parts, np.array(plan.bound, np.int64)]))
