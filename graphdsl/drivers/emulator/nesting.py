"""Nodes of the emulator that hold graphs: children, and conditional nodes with their bodies.

How they are read out of a `NODE_PARAMS`, and which of the graphs inside run. This module must not run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from graphdsl.drivers.base import Handle
from graphdsl.drivers.emulator.graph import Condition
from graphdsl.drivers.emulator.machine import Device
from graphdsl.drivers.emulator.nodes import NodeKind
from graphdsl.drivers.emulator.problems import LAUNCH_FAILED, Problem
from graphdsl.drivers.structs import CONDITIONAL_NODE

MOST_TURNS = 1_000_000
"""Of a while node; on a GPU one that never ends hangs, and nobody waits longer for the emulator."""

_FORMS = ("if", "while", "switch")

CHILD = NodeKind("child", lambda machine, address: None, lambda machine, params: None)
CONDITIONAL = NodeKind("conditional", lambda machine, address: None, lambda machine, params: None)


@dataclass(frozen=True)
class Branch:
    """What a conditional node was given.

    Attributes
    ----------
    device : Device
        Where it runs, with all that is in its bodies.
    form : str
        ``"if"``, ``"while"`` or ``"switch"``.
    handle : int
        Handle of its condition.
    condition : Condition
        What decides.
    bodies : numpy.ndarray of uint64
        Handles of the graphs inside; the caller was given the address of this array.
    """

    device: Device
    form: str
    handle: Handle
    condition: Condition
    bodies: np.ndarray[tuple[int], np.dtype[np.uint64]]


def read_conditional(fields: np.void, conditions: dict[Handle, Condition]) -> tuple[str, int]:
    """Form and number of bodies of a conditional node; refuses what the driver refuses."""
    assert fields.dtype == CONDITIONAL_NODE, fields.dtype
    form, size, handle = int(fields["form"]), int(fields["size"]), int(fields["handle"])
    if handle not in conditions:
        raise Problem(f"{handle:#x} is no condition of the graph")
    if conditions[handle].used:
        raise Problem(f"another conditional node asks the condition {handle:#x} already")
    if form >= len(_FORMS):
        raise Problem(f"a conditional node of type {form}; there is none of that number")
    most = {"if": 2, "while": 1}.get(_FORMS[form])
    if not size or (most is not None and size > most):
        raise Problem(f"{size} bodies of a conditional node of type {_FORMS[form]}")
    if int(fields["ctx"]) != conditions[handle].context:
        raise Problem(f"{int(fields['ctx']):#x} is not the context of the condition")
    return _FORMS[form], size


T = TypeVar("T")


def chosen(branch: Branch, inside: Sequence[T]) -> Iterator[T]:
    """What runs inside of a conditional node, one after the other; asks the condition before each."""
    if branch.form == "while":
        turns = 0
        while _value(branch):
            turns += 1
            if turns > MOST_TURNS:
                raise Problem(
                    f"a while node has run {MOST_TURNS:,} times",
                    LAUNCH_FAILED,
                    "Let a kernel in its body set the condition to 0.",
                )
            yield inside[0]
        return
    value = _value(branch)
    place = (0 if value else 1) if branch.form == "if" else value
    if place < len(inside):
        yield inside[place]


def _value(branch: Branch) -> int:
    value = branch.condition.value
    if value is None:
        raise Problem(
            "a conditional node asks for a condition that nobody has set",
            LAUNCH_FAILED,
            "Give the condition a default, or let a kernel that is ordered before set it.",
        )
    return value
