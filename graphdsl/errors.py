"""The one family of errors that graphdsl raises.

Every error says which node and field it is about, the value found there, the rule that the value breaks and
what to do; each of these is an attribute too, so that programs need not parse messages. Errors can be pickled, for
worker processes. This module must import nothing else of the package: every stage stands on it.
"""

from __future__ import annotations

import copyreg
import inspect
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Self

Location = tuple[str, int]
"""Where something was declared: file name and line number."""


def describe(
    rule: str,
    *,
    bucket: Any = None,
    graph: str | None = None,
    node: str | None = None,
    field: str | None = None,
    value: Any = None,
    remedy: str | None = None,
    location: Location | None = None,
) -> str:
    """One sentence or two in the order a reader needs them: where, what was found, the rule, the remedy.

    Examples
    --------
    >>> describe("at most 1024 threads a block", node="scale", field="block", value=2048, remedy="Use a smaller block.")
    "node 'scale', block = 2048: at most 1024 threads a block. Use a smaller block."
    """
    places = {"graph": graph, "node": node}
    subject = [] if bucket is None else [f"bucket {getattr(bucket, 'name', bucket)}"]
    subject += [f"{what} {name!r}" for what, name in places.items() if name is not None]
    if field is not None:
        subject.append(field if value is None else f"{field} = {text_of(value)}")
    elif value is not None:
        subject.append(text_of(value))
    text = f"{', '.join(subject)}: {rule}" if subject else rule
    text = text if text.endswith((".", "?", "!")) else text + "."
    if remedy:
        text += f" {remedy}"
    if location is not None:
        text += f" (declared at {location[0]}:{location[1]})"
    return text


_DETAILS = tuple(inspect.signature(describe).parameters)[1:]
_OF_THE_USER = frozenset({"value", "changes", "in_flight"})  # attributes that may hold what cannot be pickled
_MOST_BITS = 256
_MOST_CHARACTERS = 1000


def text_of(value: Any) -> str:
    """A value for a message: of an integer that would fill pages only its size, of a long text its start.

    Examples
    --------
    >>> text_of(-12), text_of((10**400, 1))
    ('-12', '(an integer of 1329 bits, 1)')
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"{'a negative' if value < 0 else 'an'} integer of {value.bit_length()} bits"
    if type(value) is tuple:
        return f"({', '.join(map(text_of, value))}{',' if len(value) == 1 else ''})"
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def plain(value: Any) -> Any:
    """A value as it goes to another process: data as it is, all else, such as an operand with its graph, as text.

    Examples
    --------
    >>> plain((3, "x", [1.5, None])), plain(range)
    ((3, 'x', [1.5, None]), "<class 'range'>")
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        return value
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return (tuple if isinstance(value, tuple) else list)(map(plain, value))
    return str(value)


class GraphdslError(Exception):
    """Base of every error of the package.

    Parameters
    ----------
    rule : str
        The rule that was broken, as a statement.
    bucket : Bucket, optional
        Whose graph it is about, in a cache of graphs.
    graph : str, optional
        Name of the graph concerned.
    node : str, optional
        Name of the node concerned.
    field : str, optional
        Name of the field of that node, or of the argument of the call.
    value : object, optional
        The value found there.
    remedy : str, optional
        What to do, as an instruction.
    location : tuple of str and int, optional
        File and line where the node was declared.
    """

    def __init__(
        self,
        rule: str,
        *,
        bucket: Any = None,
        graph: str | None = None,
        node: str | None = None,
        field: str | None = None,
        value: Any = None,
        remedy: str | None = None,
        location: Location | None = None,
    ) -> None:
        super().__init__()
        self.rule = rule
        self.bucket = bucket
        self.graph = graph
        self.node = node
        self.field = field
        self.value = value
        self.remedy = remedy
        self.location = location
        self.about()

    def about(self, **details: Any) -> Self:
        """Add what is known now, by the names of the parameters; gives the error itself, its text made anew."""
        vars(self).update(details)
        self.args = (describe(self.rule, **{name: getattr(self, name) for name in _DETAILS}),)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickles and copies, of subclasses too, whatever their ``__init__`` takes; see `plain`."""
        state = {name: plain(value) if name in _OF_THE_USER else value for name, value in vars(self).items()}
        return copyreg.__newobj__, (type(self), *self.args), state  # type: ignore[attr-defined]


class DeclarationError(GraphdslError):
    """A declaration that cannot be recorded: a name taken twice, an operand of no known kind, a wrong shape."""


class BucketError(GraphdslError):
    """A request is larger than the largest bucket; ``value`` is its size on the axis that is too short.

    Attributes
    ----------
    axis : str
        The axis; of several that are too short, the first one.
    largest : int
        The largest bucket on it.
    """

    def __init__(self, rule: str, *, axis: str = "", largest: int = 0, **details: Any) -> None:
        super().__init__(rule, **{"field": axis or None, **details})
        self.axis = axis
        self.largest = largest


class CheckError(GraphdslError):
    """A definition has errors; ``report`` (a `graphdsl.check.Report`) lists all of them."""

    def __init__(self, rule: str, *, report: Any, **details: Any) -> None:
        super().__init__(rule, **details)
        self.report = report


class CompileError(GraphdslError):
    """A kernel could not be compiled, linked or given a parameter layout."""


class CaptureError(GraphdslError):
    """The work of a captured node could not be recorded; what its function raised, if it did, is the ``__cause__``.

    Attributes
    ----------
    code : int
        The driver's result code (a ``CUresult``); 0 if the driver has refused nothing.
    code_name : str
        Its name, such as ``"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"``.
    """

    def __init__(self, rule: str, *, code: int = 0, code_name: str = "", **details: Any) -> None:
        super().__init__(rule, **details)
        self.code = code
        self.code_name = code_name


class UpdateError(GraphdslError):
    """An update was refused before anything was sent to the driver: the exec is as it was."""


class DriverError(GraphdslError):
    """The driver refused a call.

    Attributes
    ----------
    call : str
        Name of the driver function, such as ``"cuGraphInstantiateWithParams"``.
    code : int
        The driver's result code (a ``CUresult``).
    code_name : str
        Its name, such as ``"CUDA_ERROR_INVALID_VALUE"``.
    node_handle : int
        The driver's handle of the node that it blames, 0 if it blames none.
    index : int
        Of a call on many nodes, which of them was refused.
    changes : tuple
        Of a refused update, the fields of the node that it was to change: name, old value, new value.
    in_flight : tuple or None
        Of a fault that a GPU reports, the launches that may have failed: name of the graph, first and last number.
    """

    node_handle: int = 0
    index: int = 0
    changes: tuple[tuple[str, Any, Any], ...] = ()
    in_flight: tuple[tuple[str, int, int], ...] | None = None

    def __init__(self, call: str, code: int, code_name: str, rule: str | None = None, **details: Any) -> None:
        said = f"{call} returned {code_name} ({int(code)})"
        super().__init__(f"{said}: {rule}" if rule else said, **details)
        self.call = call
        self.code = int(code)
        self.code_name = code_name
        self.reason = rule


class MemoryFault(DriverError):
    """A node touched memory that it may not: outside an allocation, after its release, or before it was written.

    Only the emulator can tell; a GPU reports some of these as ``CUDA_ERROR_ILLEGAL_ADDRESS`` and misses others. What
    the emulator knows it adds as attributes: ``kind``, ``address``, ``nbytes``, ``allocation`` (address and size) and
    ``offset`` in it; from a kernel ``argument``, ``index``, ``thread``, ``block`` and ``source`` (file and line) too.
    """


class CallbackError(GraphdslError):
    """A Python host node raised; the exception is the ``__cause__``. Raised by the next synchronise."""

    @property
    def raised_at(self) -> Location | None:
        """File and line that raised; None if that is not known, as in another process."""
        frames = traceback.extract_tb(getattr(self.__cause__, "__traceback__", None))
        return (frames[-1].filename, frames[-1].lineno or 0) if frames else None


class OrderError(GraphdslError, AssertionError):
    """Two orders that no edge tells apart give different results; `graphdsl.testing` found the two nodes to blame.

    Attributes
    ----------
    nodes : tuple of str
        The two nodes, in the order that the edge would have; ``location`` is where the second was declared.
    locations : tuple of tuples
        Where they were declared: file and line of each.
    edge : tuple of str
        The edge that is missing: source and target. They are the nodes themselves, or what holds them.
    buffer : str or None
        The memory that differs after the two nodes; None where only a node that fails does.
    index : tuple of int or None
        The first element of it that does.
    values : tuple
        What it is where they run in the order of ``nodes``, and the other way; None where nobody has written it.
    output : str or None
        The first of the outputs that differs at the end; None where a node fails.
    orders : tuple of tuples of str
        Two orders of all nodes that ran, which differ by the two nodes alone: that of ``nodes`` first.
    failures : tuple
        What each of the orders raised; None where all nodes ran.
    """

    def __init__(
        self,
        rule: str,
        *,
        nodes: tuple[str, ...] = (),
        locations: tuple[Location, ...] = (),
        edge: tuple[str, ...] = (),
        buffer: str | None = None,
        index: tuple[int, ...] | None = None,
        values: tuple[Any, ...] = (),
        output: str | None = None,
        orders: tuple[tuple[str, ...], ...] = (),
        failures: tuple[GraphdslError | None, ...] = (),
        **details: Any,
    ) -> None:
        super().__init__(rule, **details)
        self.nodes = nodes
        self.locations = locations
        self.edge = edge
        self.buffer = buffer
        self.index = index
        self.values = values
        self.output = output
        self.orders = orders
        self.failures = failures


class PaddingError(GraphdslError, AssertionError):
    """A request gives something else in its bucket than in a graph of its size; `graphdsl.testing` found it.

    Attributes
    ----------
    bucket, sizes : mapping of str to int
        The bucket, and the sizes of the request.
    input : str or None
        The input whose padding is the reason; None where it is no single one.
    output : str or None
        The output that differs; None where a node fails.
    index : tuple of int or None
        The first element of it that does.
    values : tuple
        What it is at the exact size, and in the bucket.
    failure : GraphdslError or None
        What the launch in the bucket raised.
    """

    def __init__(
        self,
        rule: str,
        *,
        bucket: Any = None,
        sizes: Any = None,
        input: str | None = None,
        output: str | None = None,
        index: tuple[int, ...] | None = None,
        values: tuple[Any, ...] = (),
        failure: GraphdslError | None = None,
        **details: Any,
    ) -> None:
        super().__init__(rule, **details)
        self.bucket = bucket
        self.sizes = sizes
        self.input = input
        self.output = output
        self.index = index
        self.values = values
        self.failure = failure


class BuildError(GraphdslError):
    """The function that builds the graph of a bucket raised, or gave no graph; what it raised is the ``__cause__``."""


class RefusedError(GraphdslError):
    """A cache of graphs had nothing for a request: no arena was free, or its execs have no room.

    Attributes
    ----------
    reason : str
        In short why, as the cache counts it.
    """

    def __init__(self, rule: str, *, reason: str = "", **details: Any) -> None:
        super().__init__(rule, **details)
        self.reason = reason


class ArenaError(GraphdslError):
    """What was in an arena is gone: there was a launch in it since, or another request wrote its inputs there."""


class ExecUnusableError(GraphdslError):
    """The exec was closed, or an update failed and the values before it could not be restored."""
