"""Runs a kernel on the emulator from its packed parameter bytes, as a GPU would.

The bytes are decoded by the kernel's own parameter layout, so that a mistake in packing shows. Threads run one after
the other (`scheduler`); blocks too, x first. This module must not know graphs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

import numpy as np
from numba.cuda import types

from graphdsl.compile import elf
from graphdsl.compile.c_abi import PointerType
from graphdsl.compile.image import ArrayValue, KernelImage
from graphdsl.compile.signature import unpack
from graphdsl.drivers.emulator.arrays import array_at, as_dtype, pointer_at, widen
from graphdsl.drivers.emulator.device_api import DeviceApi
from graphdsl.drivers.emulator.launch_control import Called, LaunchControl, Settable
from graphdsl.drivers.emulator.memory import Reach
from graphdsl.drivers.emulator.problems import LAUNCH_FAILED, AccessError, Problem
from graphdsl.drivers.emulator.scheduler import Place, Scheduler, ThreadError
from graphdsl.drivers.emulator.translate import Translator
from graphdsl.errors import CompileError

_Copy = tuple[DeviceApi, Callable[..., Any]]


class Library:
    """Machine code that was loaded.

    Parameters
    ----------
    image : KernelImage
        An image of it.
    kernel : int
        Handle of its kernel.

    Attributes
    ----------
    kernels : dict of KernelImage to int
        Handle of the kernel of each image that was asked for.
    """

    def __init__(self, image: KernelImage, kernel: int) -> None:
        self._image = image
        self.kernels = {image: kernel}

    def has(self, image: KernelImage) -> bool:
        """True if the kernel of an image is in this machine code."""
        own = self._image
        if image.cubin != own.cubin:
            return False
        return image.entry == own.entry or (bool(own.cubin) and image.entry in elf.kernels(own.cubin))


class EmulatedKernel:
    """A kernel that can run, if there is a Python function for it.

    Parameters
    ----------
    image : KernelImage
        What was compiled; its Python function is what runs.
    """

    def __init__(self, image: KernelImage) -> None:
        self.image = image
        self._idle = [self._copy()]

    def run(
        self,
        space: Reach,
        grid: Place,
        block: Place,
        shared_bytes: int,
        parameters: bytes,
        *,
        cooperative: bool = False,
        before_wait: Callable[[], Any] | None = None,
        conditions: Mapping[int, Settable] | None = None,
    ) -> Called:
        """Run all threads of a launch.

        Parameters
        ----------
        space : Reach
            Memory that addresses among the parameters lead to.
        grid, block : Place
            Shape of the launch.
        shared_bytes : int
            Dynamic shared memory of a block.
        parameters : bytes
            Packed parameters.
        cooperative : bool
            Run all blocks at once, so that they can wait for each other.
        before_wait : callable, optional
            Runs the launches that this one waits for, by `graphdsl.device.grid_dependency_wait`: called once, when the
            first block can go on with nothing else, and never if no thread waits. It may run this kernel, too; what it
            raises ends the launch.
        conditions : mapping of int to Settable, optional
            The conditions of the device by their handles, for `graphdsl.device.set_condition`.

        Returns
        -------
        Called
            Which functions of `graphdsl.device` were called.

        Raises
        ------
        AccessError
            If a thread touches memory that it may not.
        Problem
            If a thread fails otherwise; the exception is the cause.
        """
        arguments = self._arguments(space, parameters)
        api, function = copy = self._idle.pop() if self._idle else self._copy()
        scheduler = Scheduler(functools.partial(function, *arguments), block)
        launch = LaunchControl(scheduler, before_wait, {} if conditions is None else conditions)
        api.begin_launch(grid, block, shared_bytes, scheduler, launch, cooperative)
        places = itertools.product(range(grid.z), range(grid.y), range(grid.x))
        blocks = (Place(x, y, z) for z, y, x in places)
        try:
            with np.errstate(all="ignore"):
                for together in [tuple(blocks)] if cooperative else zip(blocks):
                    api.begin_blocks()
                    scheduler.run(*together)
        except ThreadError as problem:
            raise self._explained(problem) from problem.__cause__
        finally:
            scheduler.close()
            self._idle.append(copy)
        return launch.called

    def _copy(self) -> _Copy:
        """The kernel, translated: one copy for each launch that runs while another one waits."""
        api = DeviceApi()
        return api, Translator(api).function(_no_function if self.image.function is None else self.image.function)

    def _arguments(self, space: Reach, parameters: bytes) -> list[Any]:
        layout = self.image.layout
        try:
            values = unpack(layout, parameters)
        except CompileError as cause:
            raise Problem(f"the parameters of kernel {self.image.name!r}: {cause}", LAUNCH_FAILED) from cause
        return [_argument(space, *given) for given in zip(values, layout.types, layout.names)]

    def _explained(self, problem: ThreadError) -> Problem:
        """What a thread ran into, with the place in the kernel's source."""
        cause = problem.__cause__
        assert cause is not None
        details: dict[str, Any] = {"thread": problem.thread, "block": problem.block}
        where = f"{problem} of kernel {self.image.name!r}"
        source = _source(cause.__traceback__)
        if source is not None:
            details["source"] = source
            where += f", {source[0]}:{source[1]}"
        if isinstance(cause, AccessError):
            return AccessError(text=f"{cause.text}; {where}", code=cause.fault, **(cause.details | details))
        remedy = _UNREPORTED if _raised_by_the_kernel(cause) else None
        return Problem(f"{type(cause).__name__}: {cause}; {where}", LAUNCH_FAILED, remedy, **details)


def _no_function(*args: Any) -> None:
    raise NotImplementedError("this kernel is machine code, which the emulator cannot run")


def _argument(space: Reach, value: Any, numba_type: Any, name: str) -> Any:
    """An argument as the kernel sees it."""
    if isinstance(numba_type, PointerType):
        return pointer_at(space, value.address, numba_type.element, name)
    if isinstance(value, ArrayValue):
        element_type = numba_type.dtype if isinstance(numba_type, types.Array) else numba_type
        return array_at(space, value.address, value.shape, value.strides, as_dtype(element_type), name)
    if isinstance(value, tuple):
        items = [_argument(space, item, numba_type.types[i], f"{name}[{i}]") for i, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return widen(value)


_UNREPORTED = (
    "A GPU does not report what a kernel raises: there a thread ends at a raise or an assert, an integer division by "
    "zero gives 0, and the launch succeeds. Keep it from happening, or write a code for it to an array."
)
_MACHINERY = (__name__.rpartition(".")[0], "graphdsl.device", "numba.")


def _raised_by_the_kernel(problem: BaseException) -> bool:
    """True if a line of the user's raised, not a function of the emulator that it called."""
    frames = [frame for frame, _ in walk_tb(problem.__traceback__)]
    return bool(frames) and not _is_machinery(frames[-1])


def _source(traceback: TracebackType | None) -> tuple[str, int] | None:
    """File and line of the innermost call that is not the emulator's own."""
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(traceback) if not _is_machinery(frame)]
    return places[-1] if places else None


def _is_machinery(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith(_MACHINERY)
