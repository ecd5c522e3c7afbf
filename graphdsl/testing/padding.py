"""Tests of padding: does what fills a bucket behind the real rows of a request reach what comes of them?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphdsl.declare.store import unknown_name
from graphdsl.drivers.emulator import Emulator
from graphdsl.errors import DeclarationError, PaddingError
from graphdsl.serve.buckets import Bucket, Buckets, sizes_text
from graphdsl.serve.padding import LAST, Padding
from graphdsl.testing.differences import Tolerance
from graphdsl.testing.padding_trial import POISONS, Arrays, Cache, PaddingTrial, Result


class TriedPadding(NamedTuple):
    """What a cache was held to.

    Attributes
    ----------
    buckets : int
        How many buckets.
    requests : int
        How many requests of other sizes in all of them, each with every poison.
    """

    buckets: int
    requests: int

    def __str__(self) -> str:
        return f"{self.requests} requests in {self.buckets} buckets"


def assert_padding_safe(
    cache: Cache,
    inputs: Mapping[str, Any] | Callable[..., Mapping[str, Any]],
    *,
    ignore: Mapping[str, Any] | None = None,
    expected: Callable[..., Mapping[str, Any]] | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> TriedPadding:
    """Run requests that do not fill their bucket, with poison in the rest, and compare with a graph of their own size.

    In each bucket there are requests of its exact size, of one less on an axis and of one more than the bucket before,
    and of such a size on all axes. Each launch begins with poison in all memory of the exec, and in the padding of
    inputs that no node relies on: once NaN and -1 (bytes of 0xFF), once large numbers (0x7F). Inputs that nodes rely on
    (see `Padding`) hold their fill. What comes of the real rows must be what a graph that ``build`` makes for exactly
    that size gives.

    The graphs are built and instantiated for the test, with what swaps of the cache have bound: execs of the cache are
    not used, and its counts stay as they are. Memory of others is put back behind each launch; nobody else may use it
    meanwhile.

    Parameters
    ----------
    cache : GraphCache
        What is tried: its ``build``, buckets, device, inputs, outputs, sizes and owners.
    inputs : dict of str to array_like, or callable
        For each input of the cache the rows of the largest request, of which smaller ones take the first; or a function
        of the sizes that gives the real rows of each.
    ignore : dict of str to index, optional
        Elements of outputs that do not count, such as a scrap slot: anything that indexes a NumPy array.
    expected : callable, optional
        In place of graphs of the exact size, where ``build`` does not make them: takes the inputs as a dict, and the
        sizes as keywords, and gives the outputs as a dict.
    rtol, atol : float
        How far floating-point outputs may be apart, as `numpy.isclose` takes it; by default they are equal. A graph of
        another size may add in another order.

    Returns
    -------
    TriedPadding
        How many buckets and requests there were.

    Raises
    ------
    PaddingError
        If an output differs, or a node fails where it does not at the exact size. It is an `AssertionError` too, and
        has as attributes the bucket, the sizes, the input to blame, and what differs.
    GraphdslError
        If a graph of the exact size fails.

    Notes
    -----
    On the emulator kernels run in Python: keep buckets few and small for the test.
    """
    outputs = {name: Padding(axes) for name, axes in cache.outputs.items()}
    if not outputs:
        raise DeclarationError("there is nothing to compare", field="outputs", remedy="Name the outputs of the cache.")
    _require_names(cache.inputs, inputs)
    for name in ignore or {}:
        if name not in outputs:
            raise unknown_name(name, outputs, "output of the cache", DeclarationError, field="ignore")
    exact: dict[Bucket, Arrays] = {}
    compare = _Comparison(Tolerance(rtol, atol), ignore or {})

    def reference(data: Mapping[str, Any], sizes: Bucket) -> Arrays:
        if sizes not in exact:
            if expected is not None:
                found = expected(data, **sizes)
                for name in outputs.keys() - found.keys():
                    raise DeclarationError(
                        "what is expected has all outputs, and this one is missing",
                        bucket=sizes,
                        field="expected",
                        value=repr(name),
                        remedy=f"Give {', '.join(outputs)}.",
                    )
                exact[sizes] = {name: np.asarray(found[name]) for name in outputs}
            else:
                with PaddingTrial(cache, sizes, outputs) as trial:
                    result = trial.run(data, sizes, memory=POISONS[0])
                    if result.failure is not None:
                        raise result.failure
                exact[sizes] = result.outputs
        return exact[sizes]

    requests = 0
    for bucket in cache.buckets:
        with ExitStack() as stack:
            trial = stack.enter_context(PaddingTrial(cache, bucket, outputs))
            for sizes in requests_of(bucket, cache.buckets):
                data = _data(cache, inputs, sizes)
                wanted = reference(data, sizes)
                requests += 1
                for byte in POISONS:
                    found = trial.run(data, sizes, memory=byte, poison=byte)
                    difference = compare(wanted, found)
                    if difference is not None:
                        launch = _Launch(sizes, byte, found)
                        blame = _blame(cache, trial, data, wanted, launch, compare)
                        raise _error(bucket, launch, difference, blame) from found.failure
    return TriedPadding(len(cache.buckets), requests)


def requests_of(bucket: Bucket, buckets: Buckets) -> Iterator[Bucket]:
    """The sizes to try in a bucket, the exact one first: one less, and one more than the bucket before.

    Examples
    --------
    >>> buckets = Buckets(batch=[1, 4], seq=[2, 8])
    >>> [request.name for request in requests_of(buckets.largest, buckets)][:4]
    ['batch=4, seq=8', 'batch=3, seq=8', 'batch=2, seq=8', 'batch=4, seq=7']
    """
    least = {
        axis: max([0, *(each for each in buckets.sizes[axis] if each < size)]) + 1 for axis, size in bucket.items()
    }
    less = {axis: max(size - 1, least[axis]) for axis, size in bucket.items()}
    one_axis = [{**bucket, axis: size[axis]} for axis in bucket for size in (less, least)]
    yield from dict.fromkeys(map(Bucket, [dict(bucket), *one_axis, less, least]))


@dataclass(frozen=True)
class _Difference:
    """Where an output is not what it is at the exact size; without one a node has failed."""

    output: str | None = None
    index: tuple[int, ...] | None = None
    values: tuple[Any, ...] = ()


class _Launch(NamedTuple):
    """A launch in a bucket: of which request, with which poison, and what came of it."""

    sizes: Bucket
    byte: int
    result: Result


class _Comparison(NamedTuple):
    """Compares what came of a launch with what is wanted."""

    tolerance: Tolerance
    ignore: Mapping[str, Any]

    def alike(self, one: Result, other: Result) -> bool:
        """True if two launches came to the same."""
        if one.failure is not None or other.failure is not None:
            return one.failure is not None and other.failure is not None
        return self(one.outputs, other) is None

    def __call__(self, wanted: Arrays, found: Result) -> _Difference | None:
        if found.failure is not None:
            return _Difference()
        for name, array in found.outputs.items():
            one = np.asarray(wanted[name])
            if one.shape != array.shape:
                return _Difference(name, None, (one.shape, array.shape))
            differ = np.array(one != array)
            if array.dtype.kind in "fc":
                differ &= ~np.isclose(one, array, *self.tolerance, equal_nan=True)
            if name in self.ignore:
                differ[self.ignore[name]] = False
            if differ.any():
                index = tuple(map(int, np.unravel_index(int(differ.argmax()), differ.shape)))
                return _Difference(name, index, (one[index].item(), array[index].item()))
        return None


class _Blame(NamedTuple):
    """What is the reason: the input, what was found out, and what to do."""

    input: str | None
    why: str
    remedy: str


_STOP = "Let kernels stop at the real size, which sizes= of the cache passes as a param"


def _blame(
    cache: Cache, trial: PaddingTrial, data: Mapping[str, Any], wanted: Arrays, wrong: _Launch, compare: _Comparison
) -> _Blame:
    """Find the input whose padding is the reason: with its last real row repeated there, something else comes of it.

    One with which all is right comes before one that only changes what is wrong; integers, which say where others go,
    come before other numbers.
    """
    if not isinstance(cache.device, Emulator):  # a GPU that has faulted tells no more
        return _Blame(None, "run it on the emulator to be told which padding is the reason", f"{_STOP}.")
    name = _reaching(cache, trial, data, wanted, wrong, compare)
    if name is not None:
        padding, why = cache.inputs[name], f"what the padding of {name!r} holds reaches it"
        if name not in trial.open_inputs():
            how = f"scrap={padding.scrap}" if padding.scrap is not None else f"fill={padding.fill!r}"
            remedy = f"Let kernels skip such rows, or pad {name!r} with what does no harm, such as a scrap slot."
            return _Blame(name, f"{why}: {how}", remedy)
        if padding.fill is None:
            return _Blame(name, why, f"{_STOP}, or declare what fills {name!r}.")
        return _Blame(name, why, f"{_STOP}. If nodes may count on the fill of {name!r}, say so with relied_on=True.")
    if not compare.alike(wrong.result, trial.run(data, wrong.sizes, memory=0, poison=wrong.byte)):
        return _Blame(
            None,
            "memory of the graph that the launch has not written reaches it",
            f"Let a node write all rows that another one reads. {_STOP}.",
        )
    return _Blame(None, "it does so whatever the padding holds", f"{_STOP}, and not at that of the bucket.")


def _reaching(
    cache: Cache, trial: PaddingTrial, data: Mapping[str, Any], wanted: Arrays, wrong: _Launch, compare: _Comparison
) -> str | None:
    """An input whose padding has an effect: beside the poison of others, or where that covers it up, without."""
    for poison in (wrong.byte, 0):
        before = wrong.result if poison else trial.run(data, wrong.sizes, memory=wrong.byte)
        changed: list[str] = []
        for name in trial.steering_first():
            if cache.inputs[name].fill != LAST:
                after = trial.run(data, wrong.sizes, memory=wrong.byte, poison=poison, last=name)
                if not compare.alike(before, after):
                    if compare.alike(Result(wanted, None), after):
                        return name
                    changed.append(name)
        if changed:
            return changed[0]
    return None


def _error(bucket: Bucket, launch: _Launch, difference: _Difference, blame: _Blame) -> PaddingError:
    sizes, found = launch.sizes, launch.result
    where = f"a request of {sizes_text(sizes)} in the bucket {bucket.name}"
    if found.failure is not None:
        told = f"{where} fails, and does not in a graph of its size: {found.failure}"
    elif difference.index is None:
        told = (
            f"{where} gives {difference.output!r} of the shape {difference.values[1]}, and not {difference.values[0]}"
        )
    else:
        place = f"{difference.output}[{', '.join(map(str, difference.index))}]"
        told = f"{where} gives {place} = {difference.values[1]!r}, and a graph of its size {difference.values[0]!r}"
    return PaddingError(
        f"{told.rstrip('.')}; {blame.why}",
        bucket=bucket,
        sizes=sizes,
        input=blame.input,
        output=difference.output,
        index=difference.index,
        values=difference.values,
        failure=found.failure,
        remedy=blame.remedy,
    )


def _require_names(declared: Mapping[str, Padding], inputs: Any) -> None:
    if callable(inputs):
        return
    for name in declared.keys() ^ inputs.keys():
        there = "has no such input" if name in inputs else "has it as an input"
        raise DeclarationError(
            f"the inputs of a test are those of the cache, which {there}",
            field=f"inputs[{name!r}]",
            remedy=f"Pass {', '.join(declared)}, and nothing else.",
        )


def _data(cache: Cache, inputs: Any, sizes: Bucket) -> dict[str, Any]:
    """The real rows of a request."""
    if callable(inputs):
        given = dict(inputs(**sizes))
        _require_names(cache.inputs, given)
        return given
    return {name: each.slice(np.asarray(inputs[name]), sizes, name=name) for name, each in cache.inputs.items()}
