"""Integers of a kernel, as far as they can be told: bounds that are polynomials of sizes, and what they depend on.

Sizes are those of the grid, the block and the arrays, and the scalar arguments. What is computed is what the machine
computes, or nothing: a result that could leave 64 bits has no bounds. This module must not know Numba.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple


class Symbol(NamedTuple):
    """A size that is one number in all threads of a launch.

    Attributes
    ----------
    name : str
        ``"grid"``, ``"block"``, ``"shape"``, ``"size"`` or ``"scalar"``.
    place : tuple of int
        Axis of the grid or block; leaf and axis of an array; path of a scalar argument.
    least, most : int
        Bounds that it is known to have, or taken to have if ``assumed``.
    assumed : bool
        True if whoever uses what follows from it must look whether it is within the bounds.
    """

    name: str
    place: tuple[int, ...]
    least: int
    most: int
    assumed: bool = False


Poly = tuple[tuple[tuple[Symbol, ...], int], ...]
"""Monomials, each sorted symbols and a factor other than 0; sorted. The constant has no symbols."""

Bounds = frozenset[Poly]
"""Alternatives, each of which holds; empty where nothing is known."""

Taints = frozenset[Any]

NONE: Bounds = frozenset()
MOST_EXTENT = 2**31
"""What extents of arrays and 64-bit arguments are assumed to be at most: sums and products of some then fit 64 bits."""

_LIMIT = 2**63  # where the integers of the machine end
_MOST = 4  # alternatives that are kept


def constant(value: int) -> Poly:
    """The poly of a number.

    Examples
    --------
    >>> constant(3), constant(0)
    ((((), 3),), ())
    """
    return (((), value),) if value else ()


def of(symbol: Symbol) -> Poly:
    """The poly of a symbol."""
    return (((symbol,), 1),)


def plus(left: Poly, right: Poly, factor: int = 1) -> Poly:
    """``left + factor * right``."""
    if not right:
        return left
    terms = dict(left)
    for monomial, count in right:
        terms[monomial] = terms.get(monomial, 0) + factor * count
    return _poly(terms)


def product(left: Poly, right: Poly) -> Poly:
    """``left * right``."""
    terms: dict[tuple[Symbol, ...], int] = {}
    for one, first in left:
        for other, second in right:
            monomial = tuple(sorted(one + other))
            terms[monomial] = terms.get(monomial, 0) + first * second
    return _poly(terms)


def _poly(terms: dict[tuple[Symbol, ...], int]) -> Poly:
    return tuple(sorted((monomial, count) for monomial, count in terms.items() if count))


def symbols_of(poly: Poly) -> Iterable[Symbol]:
    """The symbols in a poly."""
    return (symbol for monomial, _ in poly for symbol in monomial)


def within(poly: Poly) -> bool:
    """True if the machine's integers hold whatever it can be."""
    total = 0
    for monomial, count in poly:
        size = abs(count)
        for symbol in monomial:
            size *= max(-symbol.least, symbol.most)
        total += size
    return total < _LIMIT


def at_least_zero(poly: Poly) -> bool:
    """True if it is certain that it is never negative.

    Examples
    --------
    >>> n, m = Symbol("block", (0,), 1, 1024), Symbol("scalar", (0,), -4, 4)
    >>> at_least_zero(plus(of(n), constant(-1))), at_least_zero(plus(of(n), constant(-2))), at_least_zero(of(m))
    (True, False, False)
    """
    shifted: dict[tuple[Symbol, ...], int] = {}  # of what each symbol is above its least value
    for monomial, count in poly:
        for part, factor in _shifted(monomial):
            shifted[part] = shifted.get(part, 0) + count * factor
    return all(
        count >= 0 if all(symbol.least >= 0 for symbol in monomial) else not count
        for monomial, count in shifted.items()
    )


def _shifted(monomial: tuple[Symbol, ...]) -> list[tuple[tuple[Symbol, ...], int]]:
    terms: list[tuple[tuple[Symbol, ...], int]] = [((), 1)]
    for symbol in monomial:
        kept = [((*part, symbol), factor) for part, factor in terms]
        if symbol.least > 0:
            kept += [(part, factor * symbol.least) for part, factor in terms]
        terms = kept
    return terms


def below(left: Poly, right: Poly) -> bool:
    """True if it is certain that ``left <= right``."""
    return left == right or at_least_zero(plus(right, left, -1))


def _pruned(bounds: Iterable[Poly], low: bool) -> Bounds:
    """The bounds that say most, at most a few of them."""
    kept: list[Poly] = []
    for each in sorted(bounds, key=lambda poly: (len(poly), poly)):
        if any(below(each, other) if low else below(other, each) for other in kept):
            continue
        kept = [other for other in kept if not (below(other, each) if low else below(each, other))]
        kept.append(each)
    return frozenset(kept[:_MOST])


@dataclasses.dataclass(frozen=True)
class Number:
    """A number of a kernel.

    Attributes
    ----------
    low, high : frozenset of Poly
        Each is a lower or an upper bound; there are both or none of use.
    kind : str
        ``"int"`` for what Numba computes with signed 64 bits, ``"u32"`` for unsigned ones of up to 32 bits, which
        it widens, ``"u64"`` for unsigned 64 bits; empty for all others, of which nothing is known.
    atom : object
        What names the value: two numbers of one atom differ by the difference of their ``shift``. None for no name.
    shift : int
        What it is above its atom.
    taints : frozenset of str and Symbol
        What it depends on: ``"thread"``, ``"scalar"`` (an argument, other than as a bound or a stride), ``"loaded"``;
        and the symbols whose bounds were assumed to say that the machine holds it.
    """

    low: Bounds = NONE
    high: Bounds = NONE
    kind: str = ""
    atom: Any = None
    shift: int = 0
    taints: Taints = frozenset()

    @property
    def bounded(self) -> bool:
        """True if it has bounds on both sides."""
        return bool(self.low and self.high)

    @property
    def value(self) -> int | None:
        """The one value that it has, if it is known as a number."""
        if len(self.low) == 1 and self.low == self.high:
            (poly,) = self.low
            if not poly:
                return 0
            if len(poly) == 1 and not poly[0][0]:
                return poly[0][1]
        return None

    @property
    def natural(self) -> bool:
        """True if it is certain that it is not negative."""
        return any(map(at_least_zero, self.low))

    def nameless(self) -> Number:
        """The same without its atom."""
        return self if self.atom is None else dataclasses.replace(self, atom=None, shift=0)

    def named(self, atom: Any) -> Number:
        """The same with an atom of its own if it has none."""
        return self if self.atom is not None or not self.kind else dataclasses.replace(self, atom=atom, shift=0)

    def tainted(self, taints: Taints) -> Number:
        """The same, depending on more."""
        return self if taints <= self.taints else dataclasses.replace(self, taints=self.taints | taints)


ANY = Number()


def exact(value: int) -> Number:
    """A number that is written in the code."""
    return Number(frozenset([constant(value)]), frozenset([constant(value)]), "int")


def symbolic(symbol: Symbol, kind: str = "int", taints: Taints = frozenset()) -> Number:
    """A number that is a size."""
    return Number(frozenset([of(symbol)]), frozenset([of(symbol)]), kind, taints=taints)


def between(low: Iterable[Poly], high: Iterable[Poly], kind: str, taints: Taints) -> Number:
    """A number with bounds, each of which holds; without any if the machine might not hold it."""
    lows, highs = _pruned(filter(within, low), True), _pruned(filter(within, high), False)
    if not lows or not highs:
        return Number(kind=kind, taints=taints)
    assumed = [symbol for poly in lows | highs for symbol in symbols_of(poly) if symbol.assumed]
    return Number(lows, highs, kind, taints=taints.union(assumed))


def _kind(left: Number, right: Number) -> str:
    """The kind of the result of arithmetic, which Numba does with 64 bits; empty for a float."""
    kinds = {left.kind, right.kind}
    if "" in kinds or kinds == {"int", "u64"}:
        return ""  # of signed and unsigned 64 bits Numba makes a float
    return "int" if "int" in kinds else "u64"


def add(left: Number, right: Number, sign: int = 1) -> Number:
    """The sum, or the difference if ``sign`` is -1."""
    kind, taints = _kind(left, right), left.taints | right.taints
    if not kind or (sign < 0 and kind == "u64"):
        return Number(taints=taints)
    lows, highs = (right.low, right.high) if sign > 0 else (right.high, right.low)
    found = between(
        (plus(one, other, sign) for one in left.low for other in lows),
        (plus(one, other, sign) for one in left.high for other in highs),
        kind,
        taints,
    )
    if not found.bounded:
        return found
    for number, step, factor in ((left, right.value, sign), (right, left.value, 1)):
        if number.atom is not None and step is not None and (number is left or sign > 0):
            return dataclasses.replace(found, atom=number.atom, shift=number.shift + step * factor)
    return found


def multiply(left: Number, right: Number) -> Number:
    """The product; a scalar argument is a stride where it is multiplied by what depends on the thread."""
    kind, taints = _kind(left, right), left.taints | right.taints
    for one, other in ((left, right), (right, left)):
        if "thread" in one.taints and "thread" not in other.taints:
            taints = one.taints | (other.taints - {"scalar"})
    if not kind:
        return Number(taints=taints)
    if left.natural and right.natural:
        starts = [[each for each in number.low if at_least_zero(each)] for number in (left, right)]
        lows = [product(one, other) for one in starts[0] for other in starts[1]]
        highs = [product(one, other) for one in left.high for other in right.high]
        return between(lows, highs, kind, taints)
    for number, factor in ((left, right.value), (right, left.value)):
        if factor is not None and (factor >= 0 or kind == "int"):
            low, high = ([product(each, constant(factor)) for each in bounds] for bounds in (number.low, number.high))
            return between(low, high, kind, taints) if factor >= 0 else between(high, low, kind, taints)
    return Number(kind=kind, taints=taints)


def quotient(left: Number, right: Number) -> Number:
    """The quotient, rounded down, of what is not negative and what is positive: between 0 and the dividend."""
    kind, taints = _kind(left, right), left.taints | right.taints
    if kind and left.natural and any(at_least_zero(plus(each, constant(-1))) for each in right.low):
        return between([()], left.high, kind, taints)
    return Number(kind=kind, taints=taints)


def remainder(left: Number, right: Number) -> Number:
    """The remainder of a division by what is positive: below it, as Python counts."""
    kind, taints = _kind(left, right), left.taints | right.taints
    if kind and left.kind and any(at_least_zero(plus(each, constant(-1))) for each in right.low):
        highs = [plus(each, constant(-1)) for each in right.high]
        return between([()], highs + (list(left.high) if left.natural else []), kind, taints)
    return Number(kind=kind, taints=taints)


def masked(left: Number, right: Number) -> Number:
    """The bits that both have: no more than either that is not negative."""
    kind, taints = _kind(left, right), left.taints | right.taints
    highs = [each for number in (left, right) if number.natural for each in number.high]
    return between([()], highs, kind, taints) if kind and highs else Number(kind=kind, taints=taints)


def shifted(left: Number, right: Number, up: bool) -> Number:
    """Shifted by a number of bits that the code writes."""
    bits = right.value
    if bits is None or not 0 <= bits < 62:
        return Number(kind=_kind(left, right), taints=left.taints | right.taints)
    return (multiply if up else quotient)(left, exact(2**bits))


def smaller(left: Number, right: Number) -> Number:
    """The smaller of two."""
    kind, taints = _kind(left, right), left.taints | right.taints
    if not kind:
        return Number(taints=taints)
    return between(_both(left.low, right.low, True), left.high | right.high, kind, taints)


def larger(left: Number, right: Number) -> Number:
    """The larger of two."""
    kind, taints = _kind(left, right), left.taints | right.taints
    if not kind:
        return Number(taints=taints)
    return between(left.low | right.low, _both(left.high, right.high, False), kind, taints)


def _both(left: Bounds, right: Bounds, low: bool) -> Bounds:
    """The bounds of either side that hold for the other one, too."""

    def holds(bound: Poly, others: Bounds) -> bool:
        return any(below(bound, other) if low else below(other, bound) for other in others)

    return frozenset([*(each for each in left if holds(each, right)), *(each for each in right if holds(each, left))])


def either(left: Number, right: Number) -> Number:
    """A number that is one or the other."""
    if left == right:
        return left
    lows, highs = _both(left.low, right.low, True), _both(left.high, right.high, False)
    kind = left.kind if left.kind == right.kind else ("int" if {left.kind, right.kind} == {"int", "u32"} else "")
    same = left.atom is not None and (left.atom, left.shift) == (right.atom, right.shift)
    return Number(
        lows if kind else NONE,
        highs if kind else NONE,
        kind,
        left.atom if same else None,
        left.shift if same else 0,
        left.taints | right.taints,
    )


def widened(before: Number, now: Number) -> Number:
    """``now`` with no bound that ``before`` did not have, so that loops come to an end."""
    return dataclasses.replace(now, low=now.low & before.low, high=now.high & before.high)


def counted(start: Number, stop: Number, step: Number) -> Number:
    """The numbers of ``range(start, stop, step)``."""
    kinds = {start.kind, stop.kind, step.kind}
    taints = start.taints | step.taints | ({"thread"} & stop.taints)
    if kinds != {"int"}:
        return Number(kind="" if "" in kinds else "u64", taints=taints)
    one = constant(1)
    if any(at_least_zero(plus(each, one, -1)) for each in step.low):
        return between(start.low, (plus(each, one, -1) for each in stop.high), "int", taints)
    if any(at_least_zero(plus((), plus(each, one), -1)) for each in step.high):
        return between((plus(each, one) for each in stop.low), start.high, "int", taints)
    return Number(kind="int", taints=taints)


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


class Comparison(NamedTuple):
    """What a branch may ask.

    Attributes
    ----------
    relation : str
        One of ``<``, ``<=``, ``>``, ``>=``, ``==``, ``!=``.
    left, right : Number
        What is compared.
    """

    relation: str
    left: Number
    right: Number

    def negated(self) -> Comparison:
        """What holds where it does not."""
        return self._replace(relation=_NEGATED[self.relation])

    def refined(self, number: Number) -> Number:
        """What is known of a number where it holds."""
        if {self.left.kind, self.right.kind} - {"int", "u32"} or number.atom is None:
            return number  # Numba compares floats, and signed with unsigned 64 bits, in ways of their own
        for one, other, relation in (
            (self.left, self.right, self.relation),
            (self.right, self.left, _MIRRORED[self.relation]),
        ):
            if one.atom == number.atom:
                number = _limited(number, other, relation, number.shift - one.shift)
        return number


def _limited(number: Number, other: Number, relation: str, shift: int) -> Number:
    """A number of which ``number - shift`` is compared with ``other``."""
    lows, highs, taints = set(number.low), set(number.high), number.taints
    if relation in ("<", "<=", "=="):
        highs |= {plus(each, constant(shift - (relation == "<"))) for each in other.high}
    if relation in (">", ">=", "=="):
        lows |= {plus(each, constant(shift + (relation == ">"))) for each in other.low}
    taints |= {taint for taint in other.taints if isinstance(taint, Symbol)}
    if relation == "==":
        taints |= other.taints & {"scalar", "loaded"}
    return dataclasses.replace(number, low=_pruned(lows, True), high=_pruned(highs, False), taints=taints)
