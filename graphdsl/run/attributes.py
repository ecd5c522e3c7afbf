"""Packs launch attributes into the driver's values.

They are packed once, when a graph is built: no update changes them. This module must not call the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from graphdsl.declare.attributes import Access, AccessPolicy, ClusterPolicy, LaunchAttributes, SyncDomain
from graphdsl.drivers.structs import (
    ACCESS_POLICY_WINDOW,
    ATTRIBUTE_VALUES,
    CLUSTER_DIMENSION,
    CLUSTER_SCHEDULING_POLICY,
    COOPERATIVE,
    MEM_SYNC_DOMAIN,
    MEM_SYNC_DOMAIN_MAP,
    PREFERRED_CLUSTER_DIMENSION,
    PRIORITY,
)
from graphdsl.run.derived import AddressOf


@dataclass(frozen=True, eq=False)
class PackedAttribute:
    """One attribute of a node.

    Attributes
    ----------
    number : int
        The driver's ``CUlaunchAttributeID``.
    name : str
        Its name there, without ``CU_LAUNCH_ATTRIBUTE_``.
    given : object
        What the user gave, for people to read.
    value : numpy.ndarray
        The driver's ``CUlaunchAttributeValue``.
    """

    number: int
    name: str
    given: Any
    value: np.ndarray[Any, Any]

    @property
    def address(self) -> int:
        """Where the value lies."""
        return self.value.ctypes.data


def pack_attributes(attributes: LaunchAttributes, values: Mapping[str, Any]) -> Iterator[PackedAttribute]:
    """The attributes that were given, in the order of the driver's numbers.

    Parameters
    ----------
    attributes : LaunchAttributes
        Of one node.
    values : mapping of str to number
        The address of each buffer, by name.
    """
    for field, given in attributes.given():
        number, name, fields = _FORMS[field]
        value = np.zeros(1, ATTRIBUTE_VALUES[number])
        for place, found in fields(given, values).items():
            value[place] = found
        yield PackedAttribute(number, name, given, value)


def _window(policy: AccessPolicy, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "base": AddressOf(policy.array).evaluate(values),
        "nbytes": policy.nbytes,
        "hit_ratio": policy.hit_ratio,
        "hit": get_args(Access).index(policy.hit),
        "miss": get_args(Access).index(policy.miss),
    }


def _plain(field: str) -> Callable[[Any, Mapping[str, Any]], dict[str, Any]]:
    return lambda given, values: {field: given}


def _choice(field: str, options: Any) -> Callable[[Any, Mapping[str, Any]], dict[str, Any]]:
    """The options stand in the order of the driver's numbers."""
    return lambda given, values: {field: get_args(options).index(given)}


_FORMS: dict[str, tuple[int, str, Callable[[Any, Mapping[str, Any]], dict[str, Any]]]] = {
    "access_policy": (ACCESS_POLICY_WINDOW, "ACCESS_POLICY_WINDOW", _window),
    "cooperative": (COOPERATIVE, "COOPERATIVE", _plain("cooperative")),
    "cluster": (CLUSTER_DIMENSION, "CLUSTER_DIMENSION", _plain("dims")),
    "cluster_policy": (
        CLUSTER_SCHEDULING_POLICY,
        "CLUSTER_SCHEDULING_POLICY_PREFERENCE",
        _choice("policy", ClusterPolicy),
    ),
    "priority": (PRIORITY, "PRIORITY", _plain("priority")),
    "sync_domain_map": (
        MEM_SYNC_DOMAIN_MAP,
        "MEM_SYNC_DOMAIN_MAP",
        lambda given, values: dict(zip(get_args(SyncDomain), given)),
    ),
    "sync_domain": (MEM_SYNC_DOMAIN, "MEM_SYNC_DOMAIN", _choice("domain", SyncDomain)),
    "preferred_cluster": (PREFERRED_CLUSTER_DIMENSION, "PREFERRED_CLUSTER_DIMENSION", _plain("dims")),
}
