"""Runs the command line in a child process and says what it was at when it ended.

What the child does may end its process, or never end. It tells of each step through a pipe before it begins. This
module must not know what the steps are.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

CAN_WATCH = os.name == "posix"
"""False where a child cannot be given a pipe."""


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes
    ----------
    status : int or None
        Its exit status; None if it did not end by itself.
    step : str
        What it was at: the last step that it told of, empty if none.
    why : str
        What ended it otherwise; empty if it ended by itself.
    """

    status: int | None
    step: str
    why: str = ""


def teller(descriptor: int | None) -> Callable[[str], None]:
    """In the child: gives what tells of a step through the pipe, and of the end of all of them by an empty one."""

    def tell(step: str) -> None:
        if descriptor is not None:
            os.write(descriptor, step.replace("\n", " ").encode(errors="replace") + b"\n")

    return tell


def watch(arguments: Callable[[int], Sequence[str]], patience: float | None = None) -> Ended:
    """Run the command line in a child, and wait for its end.

    Parameters
    ----------
    arguments : callable
        Takes the descriptor of the pipe that the child tells of its steps through; gives its arguments.
    patience : float, optional
        Seconds that a step may take; no limit by default. What comes before the first one may take any time.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen([sys.executable, "-c", _code(), *arguments(writing)], pass_fds=(writing,))
    finally:
        os.close(writing)
    step, why = "", ""
    with os.fdopen(reading, "rb", buffering=0), process:
        try:
            for told in _steps(reading, patience):
                step = told
        except TimeoutError:
            why = f"it took longer than {patience:g} s"
        except KeyboardInterrupt:
            why = "it was interrupted"
        if why:
            process.kill()
    if not why and process.returncode < 0:
        why = f"the process died of {_signal_name(-process.returncode)}"
    return Ended(None if why else process.returncode, step, why)


def _code() -> str:
    """What the child runs; it finds what this process finds, whatever lies in the current folder."""
    return f"import sys; sys.path[:] = {sys.path!r}; from graphdsl.cli import main; main()"


def _steps(descriptor: int, patience: float | None) -> Iterator[str]:
    """The steps that a child tells of until it closes the pipe; raises `TimeoutError` if one takes too long."""
    pending, step = b"", ""
    while True:
        ready, _, _ = select.select([descriptor], [], [], patience if step else None)
        if not ready:
            raise TimeoutError
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            step = line.decode(errors="replace")
            yield step


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
