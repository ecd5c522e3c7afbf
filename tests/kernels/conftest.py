"""Launches kernels on NumPy arrays, in the emulator always and on the GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphdsl as gd

Launcher = Callable[..., None]


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def launch(request: pytest.FixtureRequest) -> Launcher:
    """Launches a kernel on arrays, and tuples of them, which are copied to the device and back; the same array is the
    same operand."""
    return launcher(getattr(gd, request.param)())


@pytest.fixture
def launch_on_gpu() -> Launcher:
    """As `launch`, for shapes that are too large for the emulator."""
    return launcher(gd.cuda())


def launcher(device: Any) -> Launcher:
    def launch(kernel: Any, grid: int, block: int, *args: Any) -> None:
        g = gd.Graph(kernel.__name__)
        arrays = {id(array): array for array in arrays_in(args)}
        hosts = {key: g.host_array(f"host{key}", array.shape, array.dtype) for key, array in arrays.items()}
        operands = {key: g.device_array(f"device{key}", array.shape, array.dtype) for key, array in arrays.items()}

        def operand(arg: Any) -> Any:
            return tuple(map(operand, arg)) if isinstance(arg, tuple) else operands.get(id(arg), arg)

        with g.sequence():
            for key in arrays:
                g.memcpy(operands[key], hosts[key])
            g.kernel(kernel, grid=grid, block=block, args=[operand(arg) for arg in args])
            for key in arrays:
                g.memcpy(hosts[key], operands[key])
        with g.instantiate(device) as exe:
            for key, array in arrays.items():
                exe[hosts[key].name][...] = array
            exe.launch()
            exe.synchronize()
            for key, array in arrays.items():
                array[...] = exe[hosts[key].name]

    return launch


def arrays_in(args: Any) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, np.ndarray):
            yield arg
        elif isinstance(arg, tuple):
            yield from arrays_in(arg)
