"""Follows memory and numbers through the IR of a function: what each variable may hold at each place.

The values of all variables are found first, by going round loops until nothing changes, and what is done with memory is
recorded then, so that a loop is judged by what holds in all its rounds. This module must not know what is called.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from numba.cuda.core import ir

from graphdsl.compile import access_numbers as numbers
from graphdsl.compile.access_numbers import ANY, Comparison, Number
from graphdsl.compile.access_values import (
    PLAIN,
    UNSET,
    Condition,
    Items,
    Iterator,
    Known,
    Memory,
    joined,
    known,
    leaves_of,
    taints_of,
    unnamed,
    widening,
)

if TYPE_CHECKING:
    from graphdsl.compile.access import Analysis

Variables = dict[str, Any]

_RELATIONS = {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==",
              operator.ne: "!="}  # fmt: skip
_ARITHMETIC: dict[Any, Callable[[Number, Number], Number]] = {
    operator.add: numbers.add,
    operator.sub: lambda left, right: numbers.add(left, right, -1),
    operator.mul: numbers.multiply,
    operator.floordiv: numbers.quotient,
    operator.mod: numbers.remainder,
    operator.and_: numbers.masked,
    operator.lshift: lambda left, right: numbers.shifted(left, right, True),
    operator.rshift: lambda left, right: numbers.shifted(left, right, False),
}
_PATIENCE = 3  # visits of a block before bounds may only be dropped


class Body:
    """A function that is called with certain values.

    Parameters
    ----------
    analysis : Analysis
        That of the kernel, which is told what is done with memory.
    code : FunctionIR
        The function.
    arguments : dict of str to value
        What its parameters hold.
    """

    def __init__(self, analysis: Analysis, code: Any, arguments: Variables) -> None:
        self._analysis = analysis
        self._blocks = code.blocks
        self._arguments = arguments
        self._used = {name for block in code.blocks.values() for name in _used(block)}
        self._entries: dict[int, Variables] = {}
        self._visits: dict[int, int] = {}
        self._atoms: set[Any] = set()
        self.returned: Any = None

    def solve(self) -> None:
        """Find what each variable may hold at the start of each block, and what is returned."""
        first = min(self._blocks)
        self._entries[first] = {}
        waiting = {first}
        while waiting:
            label = min(waiting)
            waiting.remove(label)
            for target, variables in self._through(label):
                if self._enter(target, variables):
                    waiting.add(target)

    def record(self) -> None:
        """Tell the analysis what is done with memory, and that of the functions that are called."""
        for label in sorted(self._entries):
            self._through(label)

    # Blocks

    def _through(self, label: int) -> list[tuple[int, Variables]]:
        """Go through a block: what follows it, with the variables there."""
        self._analysis.step()
        variables = dict(self._entries[label])
        for index, statement in enumerate(self._blocks[label].body):
            self._analysis.location = statement.loc
            if isinstance(statement, ir.Assign):
                self._assign(variables, statement, (id(self), label, index))
            elif isinstance(statement, ir.Jump):
                return [(statement.target, variables)]
            elif isinstance(statement, ir.Branch):
                return self._branch(variables, statement)
            elif isinstance(statement, ir.Return):
                self._return(_of(variables, statement.value.name))
            else:
                self._do(variables, statement)
        return []

    def _branch(self, variables: Variables, statement: Any) -> list[tuple[int, Variables]]:
        condition = _of(variables, statement.cond.name)
        if not isinstance(condition, Condition):
            return [(statement.truebr, variables), (statement.falsebr, variables)]
        return [
            (statement.truebr, _refined(variables, condition.holds)),
            (statement.falsebr, _refined(variables, condition.fails)),
        ]

    def _return(self, value: Any) -> None:
        value = unnamed(value)
        self.returned = value if self.returned is None else joined(self.returned, value, self._lose)

    def _enter(self, label: int, variables: Variables) -> bool:
        """Bring variables into a block; True if that tells anything new of it."""
        self._visits[label] = self._visits.get(label, 0) + 1
        join = joined if self._visits[label] <= _PATIENCE else widening
        here = (id(self), label)
        before = self._entries.get(label)
        if before is None:
            self._entries[label] = dict(variables)
            return True
        changed = False
        for name, value in variables.items():
            value = _without(value, lambda atom: atom[:2] == here and atom[2] is None)
            old = before.get(name)
            found = value if old is None else join(old, value, self._lose)
            if isinstance(found, Number):
                found = found.named((*here, None, name))
            if found != old:
                before[name] = found
                changed = True
        return changed

    # Statements

    def _assign(self, variables: Variables, statement: Any, site: Any) -> None:
        value = self._value(variables, statement.value, statement.target.name)
        if isinstance(value, Number) and value.kind and value.atom is None:
            if site in self._atoms:  # what an earlier round made here is another number
                for name, other in variables.items():
                    variables[name] = _without(other, lambda atom: atom == site)
            self._atoms.add(site)
            value = value.named(site)
        variables[statement.target.name] = value

    def _do(self, variables: Variables, statement: Any) -> None:
        analysis = self._analysis
        if isinstance(statement, ir.SetItem):
            analysis.store(*self._all(variables, statement.target, statement.index, statement.value))
        elif isinstance(statement, ir.StaticSetItem):
            target, value = self._all(variables, statement.target, statement.value)
            analysis.store(target, known(statement.index), value)
        elif isinstance(statement, ir.SetAttr):
            target, value = self._all(variables, statement.target, statement.value)
            analysis.store(target, known(statement.attr), value)
        elif not isinstance(statement, (ir.Del, ir.Raise, ir.StaticRaise, ir.DynamicRaise, ir.PopBlock)):
            for variable in statement.list_vars():
                analysis.lose(variables.get(variable.name), f"a statement that cannot be followed, {statement}")

    def _all(self, variables: Variables, *wanted: Any) -> tuple[Any, ...]:
        return tuple(_of(variables, each.name) for each in wanted)

    # Values

    def _value(self, variables: Variables, source: Any, target: str) -> Any:
        if isinstance(source, ir.Var):
            return _of(variables, source.name)
        if isinstance(source, ir.Arg):
            return self._arguments[source.name]
        if isinstance(source, (ir.Global, ir.FreeVar, ir.Const)):
            return self._analysis.object(source.value)
        found = getattr(self, f"_{source.op}", None)
        if found is None:
            for variable in source.list_vars():
                self._analysis.lose(variables.get(variable.name), f"an expression that cannot be followed, {source.op}")
            return PLAIN
        if source.op == "call":
            return self._call(variables, source, target in self._used)
        return found(variables, source)

    def _cast(self, variables: Variables, source: Any) -> Any:
        return _of(variables, source.value.name)

    def _undef(self, variables: Variables, source: Any) -> Any:
        return known(None)

    _null = _undef

    def _build_tuple(self, variables: Variables, source: Any) -> Any:
        return Items(tuple(unnamed(_of(variables, item.name)) for item in source.items))

    def _exhaust_iter(self, variables: Variables, source: Any) -> Any:
        value = _of(variables, source.value.name)
        if isinstance(value, (Items, Number)) or not leaves_of(value):
            return value
        self._lose(value, "unpacked")
        return PLAIN

    def _getattr(self, variables: Variables, source: Any) -> Any:
        return self._analysis.attribute(_of(variables, source.value.name), source.attr)

    def _getitem(self, variables: Variables, source: Any) -> Any:
        return self._analysis.item(*self._all(variables, source.value, source.index))

    def _static_getitem(self, variables: Variables, source: Any) -> Any:
        return self._analysis.item(_of(variables, source.value.name), known(source.index))

    _typed_getitem = _getitem

    def _getiter(self, variables: Variables, source: Any) -> Any:
        return self._analysis.iterator(_of(variables, source.value.name))

    def _iternext(self, variables: Variables, source: Any) -> Any:
        value = _of(variables, source.value.name)
        if isinstance(value, Iterator):
            for memory in value.reads:
                self._analysis.load(memory)
        return value

    def _pair_first(self, variables: Variables, source: Any) -> Any:
        value = _of(variables, source.value.name)
        return value.item if isinstance(value, Iterator) else PLAIN

    def _pair_second(self, variables: Variables, source: Any) -> Any:
        return ANY

    def _unary(self, variables: Variables, source: Any) -> Any:
        value = _of(variables, source.value.name)
        if isinstance(value, Condition) and source.fn in (operator.not_, "not"):
            return Condition(value.fails, value.holds, value.taints)
        if isinstance(value, Number):
            negative = source.fn in (operator.neg, "-") and value.kind == "int"
            return numbers.add(numbers.exact(0), value, -1) if negative else Number(taints=value.taints)
        return self._read_all(value)

    def _binop(self, variables: Variables, source: Any) -> Any:
        return self._operate(source.fn, *self._all(variables, source.lhs, source.rhs))

    def _inplace_binop(self, variables: Variables, source: Any) -> Any:
        left, right = self._all(variables, source.lhs, source.rhs)
        if isinstance(left, Memory):
            self._analysis.change(left)
            self._read_all(right)
            return left
        return self._operate(source.immutable_fn, left, right)

    def _operate(self, function: Any, left: Any, right: Any) -> Any:
        if UNSET in (left, right):
            return UNSET
        if function in (operator.is_, operator.is_not):
            return ANY
        if isinstance(left, Number) and isinstance(right, Number):
            if function in _RELATIONS:
                asked = Comparison(_RELATIONS[function], left, right)
                return Condition((asked,), (asked.negated(),), left.taints | right.taints)
            made = _ARITHMETIC.get(function)
            return Number(taints=left.taints | right.taints) if made is None else made(left, right)
        if isinstance(left, Condition) and isinstance(right, Condition):
            taints = left.taints | right.taints
            if function is operator.and_:
                return Condition(left.holds + right.holds, (), taints)
            return Condition((), left.fails + right.fails if function is operator.or_ else (), taints)
        if isinstance(left, Items) and isinstance(right, Items) and function is operator.add:
            return Items(left.values + right.values)
        scalar = all(isinstance(each, (Number, Condition)) for each in (left, right))
        self._read_all(left)
        self._read_all(right)
        return Number(taints=taints_of(left) | taints_of(right)) if scalar else PLAIN

    def _read_all(self, value: Any) -> Any:
        """Memory that is an operand: all of it is read."""
        if isinstance(value, Memory):
            self._analysis.load(value)
        else:
            self._lose(value, "part of an operation")
        return PLAIN

    def _call(self, variables: Variables, source: Any, used: bool) -> Any:
        positional = [unnamed(_of(variables, each.name)) for each in source.args]
        named = {name: unnamed(_of(variables, each.name)) for name, each in source.kws}
        function = _of(variables, source.func.name)
        condition = _of(variables, source.args[0].name) if len(source.args) == 1 else None
        if isinstance(function, Known) and function.value is bool and isinstance(condition, Condition):
            return condition
        if source.vararg is not None:
            rest = _of(variables, source.vararg.name)
            if not isinstance(rest, Items):
                lost = [*positional, *named.values(), rest]
                self._analysis.lose_all(lost, "an argument list that cannot be followed")
                return PLAIN
            positional += rest.values
        return self._analysis.call(function, positional, named, used)

    def _lose(self, value: Any, how: str = "one of several things of different kinds") -> None:
        self._analysis.lose(value, how)


def _of(variables: Variables, name: str) -> Any:
    return variables.get(name, UNSET)


def _used(block: Any) -> Iterable[str]:
    for statement in block.body:
        if isinstance(statement, ir.Assign):
            if isinstance(statement.value, ir.Var):
                yield statement.value.name
            elif isinstance(statement.value, ir.Expr):
                yield from (variable.name for variable in statement.value.list_vars())
        else:
            yield from (variable.name for variable in statement.list_vars())


def _refined(variables: Variables, holds: tuple[Comparison, ...]) -> Variables:
    """The variables where comparisons hold."""
    found = dict(variables)
    for comparison in holds:
        atoms = {comparison.left.atom, comparison.right.atom} - {None}
        for name, value in found.items():
            if isinstance(value, Number) and value.atom in atoms:
                found[name] = comparison.refined(value)
    return found


def _without(value: Any, forgotten: Callable[[Any], bool]) -> Any:
    """A value that uses no atom that is forgotten."""
    if isinstance(value, Number) and value.atom is not None and forgotten(value.atom):
        return value.nameless()
    if isinstance(value, Condition):
        holds, fails = (tuple(_kept(asked, forgotten)) for asked in (value.holds, value.fails))
        return Condition(holds, fails, value.taints)
    return value


def _kept(asked: tuple[Comparison, ...], forgotten: Callable[[Any], bool]) -> Iterable[Comparison]:
    for each in asked:
        if not any(number.atom is not None and forgotten(number.atom) for number in (each.left, each.right)):
            yield each
