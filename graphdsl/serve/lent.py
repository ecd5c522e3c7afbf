"""Memory that somebody's allocator lends to an arena, such as a stream-ordered pool, and gets back once nobody uses it.

This module must not know what lies in it.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from graphdsl.drivers.base import Address, Driver
from graphdsl.errors import BuildError, GraphdslError
from graphdsl.run.arena import place_for
from graphdsl.run.blocks import freed_with, size_text

_logger = logging.getLogger("graphdsl")


class Allocator(Protocol):
    """What lends memory; the memory resources of cuda.core do."""

    def allocate(self, nbytes: int, /, *, stream: Any) -> Any:
        """Memory of the device, ordered on a stream.

        Parameters
        ----------
        nbytes : int
            How much.
        stream : object
            A stream with ``__cuda_stream__``, on a GPU that of cuda.core: what uses the memory is there.

        Returns
        -------
        object
            What has the memory, with ``__cuda_array_interface__`` or ``__dlpack__``. It is kept, and its ``close()`` is
            called once nobody uses it; one without is dropped.
        """


class LentBlock:
    """Device memory of an allocator, its contents undefined; it is given back with the last object that refers to this.

    Parameters
    ----------
    device : Driver
        Where it is to lie.
    nbytes : int
        How much.
    lender : Allocator
        What lends it.
    stream : object
        The stream that uses it, with the attribute ``handle``; it is kept as long as the memory.

    Attributes
    ----------
    address : int
        Of the first byte.

    Raises
    ------
    BuildError
        If the allocator fails.
    GraphdslError
        If what it gives cannot be an arena; it is given back then.
    """

    def __init__(self, device: Driver, nbytes: int, lender: Allocator, stream: Any) -> None:
        with device.made_current():
            try:
                owner = lender.allocate(nbytes, stream=device.stream_export(stream.handle, stream))
            except GraphdslError:
                raise
            except Exception as problem:
                raise BuildError(
                    f"allocate raised {type(problem).__name__}: {problem}",
                    field="memory",
                    value=f"{nbytes} bytes ({size_text(nbytes)})",
                    remedy="See the exception before it.",
                ) from problem
        try:
            self.address: Address = place_for(owner, nbytes, device, "memory").address
            device.stream_synchronize(stream.handle)  # from here on any stream may use it
        except BaseException as problem:
            _give_back(device, owner)
            if isinstance(problem, GraphdslError) and problem.field == "memory":
                problem.about(remedy=f"Pass a memory resource of {device.name}, whose memory begins at such addresses.")
            raise
        freed_with(self, _give_back, device, owner, stream)


def _give_back(device: Driver, owner: Any, stream: Any = None) -> None:
    """Close what has the memory; the stream is there until then."""
    close = getattr(owner, "close", None)
    if close is None:
        return
    try:
        with device.made_current():
            close()
    except Exception as problem:  # nobody is there to be told
        _logger.error("memory of an arena could not be given back: %s", problem)
