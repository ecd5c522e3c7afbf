"""Launch attributes of a kernel node: how its blocks are scheduled, and how its memory accesses are treated.

The driver gives them to a node when it is added, and carries them with no update: all are plain values that no param
changes. Most nodes have none, and then have no object of this module either. This module must not judge values that
depend on a device, a kernel or a grid; `graphdsl.check` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, get_args

import numpy as np

from graphdsl.declare.expressions import Expr
from graphdsl.declare.operands import Array, Buffer, span_nbytes
from graphdsl.errors import DeclarationError

# Choices stand in the order of the driver's numbers.

Access = Literal["normal", "streaming", "persisting"]
"""How lines of the L2 cache are kept: as ever; evicted first; kept in the part that is set aside for it."""

ClusterPolicy = Literal["default", "spread", "load_balancing"]
"""Which multiprocessors the blocks of a cluster go to: the device's choice; as many as possible; those with room."""

SyncDomain = Literal["default", "remote"]
"""In which domain the memory barriers of a kernel order accesses; ``remote`` is meant for traffic between devices."""

Cluster = tuple[int, int, int]


@dataclass(frozen=True)
class AccessPolicy:
    """How accesses of a kernel to a window of memory use the L2 cache.

    Attributes
    ----------
    array : Buffer or View
        The window: from its first element to the end of its last. Its bounds follow no param.
    hit_ratio : float
        Part of the window, 0 to 1, whose accesses are treated as ``hit`` says; those to the rest as ``miss`` says.
    hit : "normal", "streaming" or "persisting"
        Persisting lines stay in that part of the cache that is set aside with ``cuCtxSetLimit``, none by default.
    miss : "normal" or "streaming"
        The driver lets the rest not persist.

    Raises
    ------
    DeclarationError
        If a value is of another type, or the window follows a param.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> x = Definition().device_array("x", 1024, np.float32)
    >>> policy = AccessPolicy(x[256:512], hit_ratio=0.6)
    >>> policy, policy.nbytes
    (x[256:512] 0.6 persisting, else streaming, 1024)
    """

    array: Array
    hit_ratio: float = 1.0
    hit: Access = "persisting"
    miss: Access = "streaming"

    def __post_init__(self) -> None:
        if not isinstance(self.array, Array):
            raise _refused("array", self.array, "the window is an array of the graph, or a slice of one")
        if self.array.params:
            raise _refused("array", self.array, f"the window follows no param: {_FIXED}", "Slice with numbers.")
        if isinstance(self.hit_ratio, (bool, np.bool_)) or not isinstance(
            self.hit_ratio, (int, float, np.integer, np.floating)
        ):
            raise _refused("hit_ratio", self.hit_ratio, "the ratio is a number from 0 to 1")
        object.__setattr__(self, "hit_ratio", float(self.hit_ratio))
        for field in ("hit", "miss"):
            _require_choice(None, f"access_policy.{field}", getattr(self, field), Access)

    @property
    def nbytes(self) -> int:
        """Bytes from the first element of the window to the end of its last."""
        shape: Any = self.array.shape  # without params, all are numbers
        return span_nbytes(shape, self.array.strides, self.array.dtype.itemsize)

    def __repr__(self) -> str:
        window = self.array.name if isinstance(self.array, Buffer) else self.array
        return f"{window} {self.hit_ratio:g} {self.hit}, else {self.miss}"


def _refused(field: str, value: Any, rule: str, remedy: str | None = None) -> DeclarationError:
    return DeclarationError(
        rule, field=f"access_policy.{field}", value=f"{value!r} of type {type(value).__name__}", remedy=remedy
    )


@dataclass(frozen=True)
class LaunchAttributes:
    """The attributes of a kernel node, in the order of the driver's numbers; None where none was given.

    Attributes
    ----------
    access_policy : AccessPolicy or None
        How accesses to a window of memory use the L2 cache.
    cooperative : bool
        All blocks run at once, so that they can wait for each other.
    cluster : tuple of three int, or None
        Blocks in a cluster; each divides the grid.
    cluster_policy : "default", "spread", "load_balancing", or None
        Which multiprocessors the blocks of a cluster go to.
    priority : int or None
        Smaller is sooner.
    sync_domain_map : tuple of two int, or None
        The device's domains that ``default`` and ``remote`` stand for.
    sync_domain : "default", "remote", or None
        In which domain memory barriers of the kernel order accesses.
    preferred_cluster : tuple of three int, or None
        Blocks in the larger clusters that the device forms where it can.
    """

    access_policy: AccessPolicy | None = None
    cooperative: bool = False
    cluster: Cluster | None = None
    cluster_policy: ClusterPolicy | None = None
    priority: int | None = None
    sync_domain_map: tuple[int, int] | None = None
    sync_domain: SyncDomain | None = None
    preferred_cluster: Cluster | None = None

    @property
    def cluster_blocks(self) -> int:
        """Blocks in the largest cluster that the node may form; 1 if it forms none."""
        return max(math.prod(dims) for dims in (self.cluster or (1,), self.preferred_cluster or (1,)))

    def over(self, substitute: Callable[[Any], Any]) -> LaunchAttributes:
        """The same with what ``substitute`` gives for the array below the access policy."""
        policy = self.access_policy
        if policy is None:
            return self
        return replace(self, access_policy=replace(policy, array=substitute(policy.array)))

    def given(self) -> Iterator[tuple[str, Any]]:
        """Name and value of each that was given."""
        for name in ATTRIBUTES:
            value = getattr(self, name)
            if value is not None and value is not False:
                yield name, value

    def __str__(self) -> str:
        return ", ".join(name if value is True else f"{name}={value}" for name, value in self.given())


class GivenAttributes(TypedDict, total=False):
    """The attributes as `Graph.kernel` takes them; those left out are as the driver has them by default.

    Attributes
    ----------
    cooperative : bool
        Run all blocks at once, so that ``cuda.cg.this_grid().sync()`` can wait for all of them.
    cluster : int or tuple of up to three int
        Blocks in a cluster, which run side by side (from sm_90 on). Each divides the grid.
    preferred_cluster : int or tuple of up to three int
        Blocks in the larger clusters that the device forms instead where it can; multiples of ``cluster``.
    cluster_policy : "default", "spread" or "load_balancing"
        Which multiprocessors the blocks of a cluster go to.
    priority : int
        Smaller is sooner. A graph with priorities ignores that of the stream that it is launched into.
    access_policy : AccessPolicy
        How accesses to a window of memory use the L2 cache.
    sync_domain : "default" or "remote"
        In which domain memory barriers of the kernel order accesses (from sm_90 on).
    sync_domain_map : dict
        The device's domains that the two names stand for: ``{"default": 0, "remote": 1}``.
    """

    cooperative: bool
    cluster: int | tuple[int, ...]
    preferred_cluster: int | tuple[int, ...]
    cluster_policy: ClusterPolicy
    priority: int
    access_policy: AccessPolicy
    sync_domain: SyncDomain
    sync_domain_map: Mapping[SyncDomain, int]


ATTRIBUTES = tuple(field.name for field in fields(LaunchAttributes))
"""Names of all attributes, in the order of the driver's numbers."""

_FIXED = "the driver carries attributes with no update of an exec"


def launch_attributes(node: str, given: Mapping[str, Any]) -> LaunchAttributes | None:
    """The attributes of a node as `Graph.kernel` takes them, brought into one form; None if there are none.

    Examples
    --------
    >>> print(launch_attributes("scale", {"cluster": 2, "priority": -1}))
    cluster=(2, 1, 1), priority=-1
    """
    for name in given:
        if name not in _CHECKED:
            import difflib

            close = difflib.get_close_matches(name, [*_CHECKED, *_OTHER_FIELDS], n=1)
            raise DeclarationError(
                "a kernel node has no field of this name",
                node=node,
                field=name,
                remedy=f"Did you mean {close[0]}?" if close else f"Its attributes are {', '.join(ATTRIBUTES)}.",
            )
    made = {name: _CHECKED[name](node, name, value) for name, value in given.items() if value is not None}
    found = LaunchAttributes(**made)
    return None if found == _NONE else found


_NONE = LaunchAttributes()
_OTHER_FIELDS = ("grid", "block", "args", "shared_bytes", "signature", "name", "after")


def _policy(node: str, field: str, value: Any) -> AccessPolicy:
    if isinstance(value, AccessPolicy):
        return value
    raise _no_such(node, field, value, "it is an AccessPolicy", "Pass access_policy=gd.AccessPolicy(x).")


def _flag(node: str, field: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise _no_such(node, field, value, "it is True or False", "A graph of another kind needs a node of its own.")


def _number(node: str, field: str, value: Any) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise _no_such(node, field, value, "it is an integer", "Pass a number.")


def _cluster(node: str, field: str, value: Any) -> Cluster:
    dims = value if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(dims) <= 3:
        raise _no_such(node, field, value, "a cluster has one to three dimensions", "Pass an int or a tuple of ints.")
    x, y, z = (*(_number(node, field, extent) for extent in dims), 1, 1)[:3]
    return x, y, z


def _domains(node: str, field: str, value: Any) -> tuple[int, int]:
    if isinstance(value, Mapping) and set(value) == set(get_args(SyncDomain)):
        return _number(node, field, value["default"]), _number(node, field, value["remote"])
    rule = "it says which domains of the device default and remote stand for"
    raise _no_such(node, field, value, rule, "Pass {'default': 0, 'remote': 1}.")


def _choice(options: Any) -> Any:
    def checked(node: str, field: str, value: Any) -> str:
        _require_choice(node, field, value, options)
        return str(value)

    return checked


def _require_choice(node: str | None, field: str, value: Any, options: Any) -> None:
    names = get_args(options)
    if not isinstance(value, str) or value not in names:
        raise _no_such(node, field, value, f"it is one of {', '.join(names)}", f"Pass {names[0]!r}, for example.")


def _no_such(node: str | None, field: str, value: Any, rule: str, remedy: str) -> DeclarationError:
    if isinstance(value, Expr) or (isinstance(value, (tuple, list)) and any(isinstance(part, Expr) for part in value)):
        rule, remedy = f"it follows no param: {_FIXED}", "Pass a number, and instantiate a graph for each value."
    return DeclarationError(
        rule, node=node, field=field, value=f"{value!r} of type {type(value).__name__}", remedy=remedy
    )


_CHECKED: dict[str, Any] = {
    "access_policy": _policy,
    "cooperative": _flag,
    "cluster": _cluster,
    "cluster_policy": _choice(ClusterPolicy),
    "priority": _number,
    "sync_domain_map": _domains,
    "sync_domain": _choice(SyncDomain),
    "preferred_cluster": _cluster,
}
