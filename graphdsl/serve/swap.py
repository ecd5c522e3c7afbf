"""Swaps memory that graphs share, such as weights, in all execs of a cache, or in none.

The memory is copied into that which is there, or takes its place: in each exec by an update, and for those that are
built later by what the cache passes on. Whoever calls has all arenas, so that nobody launches meanwhile; launches in
flight end with what they began with. This module must not know how execs are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphdsl.declare.interop import ForeignArray, foreign_array
from graphdsl.declare.operands import Buffer, layout_of
from graphdsl.declare.regions import Intervals
from graphdsl.declare.store import unknown_name
from graphdsl.drivers.base import Address, Driver, Handle
from graphdsl.errors import GraphdslError, UpdateError
from graphdsl.graph import Graph
from graphdsl.plan import Plan
from graphdsl.run.blocks import size_text
from graphdsl.run.copies import Copy, Side, copy_all
from graphdsl.run.faults import told
from graphdsl.run.graph_exec import GraphExec
from graphdsl.run.refusal import KIND, refused, require_alike
from graphdsl.serve.buckets import Bucket, about


@dataclass(frozen=True)
class Swap:
    """What a swap of one external buffer did.

    Attributes
    ----------
    name : str
        The buffer.
    in_place : bool
        True if the memory stayed where it was, and was written.
    buckets : int
        In how many buckets that are built.
    execs : int
        In how many execs of them.
    nbytes : int
        Of the buffer.
    seconds : float
        For all buffers that were swapped with it, from when nobody else had an arena any more.
    """

    name: str
    in_place: bool
    buckets: int
    execs: int
    nbytes: int
    seconds: float

    def __str__(self) -> str:
        how = "copied in place" if self.in_place else "bound anew"
        where = f"{self.execs} execs of {self.buckets} buckets"
        return f"{self.name}: {size_text(self.nbytes)} {how} in {where}, {1000 * self.seconds:.1f} ms"


class Shared(NamedTuple):
    """What a graph declared of an external buffer, without what keeps its memory.

    Attributes
    ----------
    space, dtype, shape, strides
        As `Buffer` has them.
    nbytes : int
        From the first element to the end of the last.
    """

    space: str
    dtype: Any
    shape: tuple[Any, ...]
    strides: tuple[int, ...]
    nbytes: int

    @classmethod
    def of(cls, buffer: Buffer) -> Shared:
        """That of a buffer."""
        return cls(buffer.space, buffer.dtype, buffer.shape, buffer.strides, buffer.allocation_nbytes)

    def require_alike(self, name: str, owner: Any) -> None:
        """Refuse memory that differs in kind.

        Raises
        ------
        UpdateError
            The message names the field that differs.
        """
        rule = "memory that is swapped in must have the {field} of the old, {old}"
        require_alike(name, _found(owner, name), self, KIND, rule)


class Place(NamedTuple):
    """An exec and the bucket that it is of."""

    bucket: Bucket
    exec: GraphExec


def rebind(places: Sequence[Place], owners: Mapping[str, Any]) -> None:
    """Bind external buffers of all execs that have them to new owners.

    Parameters
    ----------
    places : sequence of Place
        The execs; nobody uses them.
    owners : dict of str to object
        The new owners, by name.

    Raises
    ------
    GraphdslError
        If an exec refuses, or the driver does, or some buffer of an exec would still lie in the memory before. All
        execs have what they had, but for one that `GraphExec.usable` says is lost.
    """
    done: list[tuple[Place, dict[str, Any]]] = []
    old: list[_Span] = []
    try:
        for place in places:
            names = [name for name in owners if is_external(place.exec, name)]
            if names:
                before, addresses = {name: place.exec[name] for name in names}, place.exec.addresses
                old += [_Span(addresses[name], _nbytes(place.exec, name), name) for name in names]
                done.append((place, before))  # first: an interrupt can come when the update is made
                _update(place, {name: owners[name] for name in names})
        require_gone(places, old, owners)
    except BaseException:
        for place, before in reversed(done):
            _put_back(place, before)
        raise
    redeclare_all((place.exec.plan for place, _ in done), owners)


def _update(place: Place, owners: Mapping[str, Any]) -> None:
    with about(place.bucket):
        place.exec.update(owners)


def _put_back(place: Place, owners: Mapping[str, Any]) -> None:
    """Bind what was there before; an exec that does not take it is of no use any more."""
    try:
        place.exec.update(owners)
    except GraphdslError as problem:
        place.exec.give_up(f"a swap failed, and what was bound before could not be put back: {problem}")


def is_external(graph_exec: GraphExec, name: str) -> bool:
    """True if an exec has an external buffer of that name."""
    buffer = graph_exec.plan.buffers.get(name)
    return buffer is not None and buffer.external


def redeclare_all(graphs: Iterable[Graph | Plan], owners: Mapping[str, Any]) -> None:
    """Let graphs of the cache say that the new owners were declared, so that they do not keep the old ones."""
    for graph in graphs:
        for name, owner in owners.items():
            buffer = graph.operands.get(name)
            if isinstance(buffer, Buffer) and buffer.external:
                found = foreign_array(owner, name)
                buffer.owner, buffer.keep, buffer.address = owner, found.keep, found.address


# Proof


class _Span(NamedTuple):
    """Where a buffer lay."""

    address: Address
    nbytes: int
    name: str


def _nbytes(graph_exec: GraphExec, name: str) -> int:
    return graph_exec.plan.buffers[name].allocation_nbytes


def require_gone(places: Sequence[Place], old: Sequence[_Span], owners: Mapping[str, Any]) -> None:
    """Refuse that a buffer of an exec still lies in memory that was swapped out, whatever its name.

    The shadow of each exec says where its buffers lie.

    Raises
    ------
    UpdateError
        The message names the bucket, the buffer, and what it lies in.
    """
    new = [found.address for found in (foreign_array(owner, name) for name, owner in owners.items())]
    spans = list(dict.fromkeys(old))
    where = Intervals((span.address, span.address + span.nbytes, number) for number, span in enumerate(spans))
    kept = {number for address in new for number in where.near(address, address + 1)}
    for place in places:
        for name, address in place.exec.addresses.items():
            inside = next((spans[n] for n in where.near(address, address + 1) if n not in kept), None)
            if inside is not None:
                raise UpdateError(
                    f"it still lies in the memory that {inside.name!r} had, at {address:#x}",
                    bucket=place.bucket,
                    graph=place.exec.name,
                    field=name,
                    value=f"{address:#x}",
                    remedy=f"Swap {name!r} too, or copy with in_place=True.",
                )


# In place


def copy_in_place(places: Sequence[Place], sources: Mapping[str, Any], device: Driver, stream: Handle) -> None:
    """Copy into the memory that external buffers have now, once what is in flight has ended.

    Parameters
    ----------
    places : sequence of Place
        The execs; nobody uses them.
    sources : dict of str to object
        What to copy, by name: of the shape and dtype of the buffer.
    device, stream
        What copies.

    Raises
    ------
    UpdateError
        If what is copied is of another shape or dtype, or the memory must not be written, or no exec has any. Nothing
        has been written.
    DriverError
        If the driver refuses a copy; what was written is put back, see `graphdsl.run.copies.copy_all`.
    """
    copies = [copy for name, source in sources.items() for copy in _copies(places, name, source)]
    _require_apart(copies)
    for place in places:
        place.exec.synchronize()
    with told(device):
        copy_all(device, copies, stream)


def _copies(places: Sequence[Place], name: str, source: Any) -> Iterator[Copy]:
    """Each memory that a buffer of that name has, with what is copied there."""
    given = _found(source, name)
    owners = {id(place.exec[name]): place.exec[name] for place in places if is_external(place.exec, name)}
    if not owners:
        raise UpdateError(
            "no exec is built that has memory of that name to copy into",
            field=name,
            remedy="Call warm_up() before, or swap without in_place.",
        )
    for owner in owners.values():
        found = _found(owner, name)
        rule = "what is copied in place must have the {field} of the memory, {old}"
        require_alike(name, given, found, ("dtype", "shape"), rule)
        if found.readonly or layout_of(found.shape, found.strides, found.dtype.itemsize) != "C":
            raise UpdateError(
                "memory that is written in place must be writable and without gaps",
                field=name,
                value=f"an object of type {type(owner).__name__}",
                remedy="Swap without in_place.",
            )
        if found.address != given.address:
            yield Copy(name, _side(found), _side(given))


def _side(array: ForeignArray) -> Side:
    return Side(array, array.address, array.space == "device")


def _require_apart(copies: Sequence[Copy]) -> None:
    """Refuse to copy what another copy, or the same, writes: it would hang on the order what is copied.

    Raises
    ------
    UpdateError
        The message names what is copied and what it lies in.
    """
    written = Intervals((*each.destination.span, number) for number, each in enumerate(copies))
    for copy in copies:
        for number in written.near(*copy.source.span):
            raise UpdateError(
                f"what is copied lies in the memory of {copies[number].name!r}, which is written too",
                field=copy.name,
                value=f"{copy.source.address:#x}",
                remedy="Copy it elsewhere before, or swap without in_place.",
            )


def _found(owner: Any, name: str) -> ForeignArray:
    try:
        return foreign_array(owner, name)
    except GraphdslError as problem:
        raise refused(problem) from None


def require_names(names: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse what no graph of the cache has from outside."""
    if not names:
        raise UpdateError("nothing is named", field="names", remedy="Pass swap(weights=new).")
    for name in names:
        if name not in known:
            raise unknown_name(name, known, "external buffer of the graphs", UpdateError)
