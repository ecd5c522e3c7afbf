"""What a trial is: one rule of the driver, and a function that tries it and says what came of it.

A trial gets a `Recorder`, through which it says what it saw, and a `Gpu`, with which it asks the driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from tests.conformance.behaviour.gpu import Gpu


@dataclass(frozen=True)
class Section:
    """Rules that belong together.

    Attributes
    ----------
    number : str
        Such as ``"C-1"``; its rules are ``"C-1.1"``, ``"C-1.2"``, …
    title : str
        What they are about.
    rules : int
        How many there are.
    modules : tuple of str
        Those that try them.
    """

    number: str
    title: str
    rules: int
    modules: tuple[str, ...]


SECTIONS = (
    Section("C-1", "Structure and edges", 12, ("structure",)),
    Section("C-2", "Kernel nodes", 14, ("kernel_nodes", "attributes")),
    Section("C-3", "Memcpy nodes", 6, ("memcpy_nodes",)),
    Section("C-4", "Memset nodes", 3, ("memset_nodes",)),
    Section("C-5", "Host, event, semaphore and batch-memory-operation nodes", 6, ("other_nodes",)),
    Section("C-6", "Allocation and free nodes", 10, ("allocations",)),
    Section("C-7", "Conditional nodes", 11, ("conditionals",)),
    Section("C-8", "Child graphs", 4, ("children",)),
    Section("C-9", "Instantiate, launch, upload", 8, ("launches",)),
    Section("C-10", "Updates of single nodes of an exec", 15, ("node_updates", "memory_updates")),
    Section("C-11", "Update of a whole exec from another graph", 5, ("whole_updates",)),
    Section("C-12", "Launches and updates from the device", 4, ("device_side",)),
    Section("C-13", "Versions, names and loading", 3, ("versions",)),
    Section("C-14", "Memory, modules, streams and failures", 5, ("surroundings",)),
    Section("C-15", "Several devices", 7, ("devices",)),
)


class Recorder(Protocol):
    """Takes down what a trial sees."""

    def expect(self, what: str, got: Any, wanted: Any) -> None:
        """Note an answer that the rule foretells; ``wanted`` may be a tuple of answers that it allows."""

    def note(self, what: str, got: Any) -> None:
        """Note an answer that the rule says nothing about."""

    def cannot(self, why: str) -> NoReturn:
        """End the trial, because this machine cannot try the rule."""


@dataclass(frozen=True)
class Trial:
    """One try of one rule.

    Attributes
    ----------
    rule : str
        Number of the rule.
    says : str
        What the rule says.
    run : callable
        Tries it.
    alone : bool
        It times something, and is run while nothing else is.
    ending : str
        How the process of the trial is expected to end: ``""`` (by itself), ``"dies"``, ``"hangs"``, or ``"any"``.
    """

    rule: str
    says: str
    run: Callable[[Recorder, Gpu], None]
    alone: bool = False
    ending: str = ""

    @property
    def name(self) -> str:
        """The function's name, by which records know the trial."""
        return self.run.__name__


_trials: dict[str, Trial] = {}


def trial(
    rule: str, says: str, *, alone: bool = False, ending: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a trial of the function below it; see `Trial` for the arguments."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        if run.__name__ in _trials:
            raise ValueError(f"two trials have the name {run.__name__}")
        _trials[run.__name__] = Trial(rule, says, run, alone, ending)
        return run

    return register


def all_trials() -> dict[str, Trial]:
    """Every trial by its name, in the order of the page."""
    for section in SECTIONS:
        for module in section.modules:
            importlib.import_module(f"{__package__}.{module}")
    return dict(sorted(_trials.items(), key=lambda item: _place(item[1].rule)))


def _place(rule: str) -> tuple[int, int]:
    section, item = rule.removeprefix("C-").split(".")
    return int(section), int(item)
