"""What an image says of a kernel, against what the driver says once it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.core import Device, ObjectCode
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

from graphdsl.compile.numba import compile_kernel
from graphdsl.declare.kernel import Kernel

pytestmark = pytest.mark.gpu

VECTOR = types.float32[::1]
RECORD = from_dtype(np.dtype([("a", np.int8), ("b", np.float64)]))
ALL = (
    types.boolean, types.int8, types.uint16, types.int32, types.uint64, types.float16, types.float32, types.float64,
    types.complex64, types.complex128, types.NPDatetime("ns"), types.float32[:, :], RECORD, types.Array(RECORD, 1, "C"),
    types.Tuple((types.int8, types.Tuple((types.float64[::1], types.boolean)), types.complex64)), types.int8,
)  # fmt: skip


def everything(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):  # type: ignore[no-untyped-def]  # noqa: E741
    pass


def shares(x):  # type: ignore[no-untyped-def]
    kept = cuda.shared.array(100, types.float32)
    i = cuda.threadIdx.x
    kept[i] = x[i]
    cuda.syncthreads()
    x[i] = kept[i ^ 1]


def keeping(count: int) -> Callable[..., None]:
    """A kernel that keeps ``count`` numbers alive at once."""
    loads = "\n".join(f"    a{i} = x[{i}]" for i in range(count))
    stores = "\n".join(f"    x[{i}] = a{count - 1 - i}" for i in range(count))
    space: dict[str, Any] = {"cuda": cuda}
    exec(f"def keeps(x):\n{loads}\n    cuda.syncthreads()\n{stores}", space)
    made: Callable[..., None] = space["keeps"]
    return made


@pytest.mark.parametrize(
    ("function", "kinds", "options"),
    [
        pytest.param(everything, ALL, {}, id="types"),
        pytest.param(shares, (VECTOR,), {}, id="shared"),
        pytest.param(shares, (VECTOR,), {"debug": True}, id="debug"),
        pytest.param(shares, (VECTOR,), {"launch_bounds": 100}, id="bounds"),
        pytest.param(shares, (VECTOR,), {"launch_bounds": (256, 2)}, id="bounds of two"),
        *[pytest.param(keeping(count), (VECTOR,), {}, id=f"keeps {count}") for count in range(20, 240, 10)],
        pytest.param(keeping(60), (VECTOR,), {"max_registers": 40}, id="registers"),
    ],
)
def test_the_driver_agrees(function: Callable[..., None], kinds: Any, options: dict[str, Any]) -> None:
    device = Device()
    device.set_current()
    target = (device.compute_capability.major, device.compute_capability.minor)
    image = compile_kernel(Kernel(function, (), options), kinds, target)
    kernel = ObjectCode.from_cubin(image.cubin).get_kernel(image.entry)
    found = kernel.attributes
    assert image.registers == found.num_regs
    assert image.shared_bytes == found.shared_size_bytes
    assert image.max_threads == found.max_threads_per_block
    parameters = [(parameter.offset, parameter.size) for parameter in kernel.arguments_info]
    assert tuple(parameters) == image.layout.parameters
