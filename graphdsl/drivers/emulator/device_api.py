"""What ``numba.cuda`` means inside an emulated kernel.

The base is the module that Numba's simulator puts in its place. Added or replaced here: indices and barriers, which
the emulator's scheduler answers; shared and local memory, which is checked like arguments; warp functions, which the
simulator lacks. This module must not know graphs or drivers.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types
from numba.cuda.simulator.kernelapi import FakeCUDAFp16, FakeCUDAModule

from graphdsl.drivers.emulator import words
from graphdsl.drivers.emulator.arrays import array_in, as_dtype, convert, widen
from graphdsl.drivers.emulator.launch_control import LaunchControl
from graphdsl.drivers.emulator.libdevice import Libdevice, meaning
from graphdsl.drivers.emulator.matrices import product
from graphdsl.drivers.emulator.memory import Kind, fresh
from graphdsl.drivers.emulator.problems import NOT_SUPPORTED, Problem
from graphdsl.drivers.emulator.scheduler import WARP, Block, Place, Scheduler

_INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_ALL_LANES = 0xFFFF_FFFF
_ONE = Place(1, 1, 1)


class DeviceApi(FakeCUDAModule):  # type: ignore[misc]  # Numba has no types
    """Stands for ``numba.cuda`` in one kernel. One launch at a time uses it.

    Attributes
    ----------
    scheduler : Scheduler
        Runs the threads of the launch.
    launch : LaunchControl
        Has those functions of `graphdsl.device` that concern the launch.
    cooperative : bool
        True if all blocks of the launch run at once.
    """

    def __init__(self) -> None:
        super().__init__(_ONE, _ONE, 0)
        self._shared = _Shared(self)
        self._local = _Local()
        self._cg = _Cooperative(self)
        self._fp16 = _Float16()

    scheduler: Scheduler
    launch: LaunchControl
    cooperative: bool

    def begin_launch(
        self,
        grid: Place,
        block: Place,
        shared_bytes: int,
        scheduler: Scheduler,
        launch: LaunchControl,
        cooperative: bool = False,
    ) -> None:
        """Take the shape of a launch."""
        self.gridDim = grid
        self.blockDim = block
        self.scheduler = scheduler
        self.launch = launch
        self.cooperative = cooperative
        self._shared.dynamic_bytes = shared_bytes

    def begin_blocks(self) -> None:
        """The blocks that run next have shared memory of their own."""
        self._shared.clear()

    def replacement(self, value: Any) -> Any:
        """What stands for an object that was imported from ``numba.cuda``; None if ``value`` is no such object."""
        if value is cuda:
            return self
        if value is cuda.libdevice:
            return self.libdevice
        if getattr(value, "__module__", None) == cuda.libdevice.__name__:
            return meaning(value.__name__)
        name = _names().get(id(value))
        if name in _INDICES:
            return _Index(self, name)
        if name == "laneid":
            raise Problem(
                "the emulator cannot follow `from numba.cuda import laneid`", NOT_SUPPORTED, "Write cuda.laneid."
            )
        return None if name is None else getattr(self, name)

    libdevice = Libdevice()

    def __getattr__(self, name: str) -> Any:
        found = getattr(cuda, name, None)
        if isinstance(found, types.Type):
            return found
        raise AttributeError(f"numba.cuda.{name} has no meaning in the emulator")

    def device_function(self, name: str) -> Any:
        """What a function of `graphdsl.device` does."""
        for owner in (LaunchControl, DeviceApi):
            if hasattr(owner, name):
                return getattr(self.launch if owner is LaunchControl else self, name)
        return getattr(words, name)

    def mma_f16(self, *fragments: Any) -> tuple[Any, ...]:
        return self._matrix_product(fragments, False)

    def mma_bf16(self, *fragments: Any) -> tuple[Any, ...]:
        return self._matrix_product(fragments, True)

    def _matrix_product(self, fragments: Any, brain: bool) -> tuple[Any, ...]:
        """The part of the thread's lane; the first lane that goes on makes those of all."""
        brought = self._meet_warp(_ALL_LANES, (fragments, []))
        made = next(iter(brought.values()))[1]
        if not made:
            made.append(product({rank % WARP: each[0] for rank, each in brought.items()}, brain))
        return tuple(made[0][self.laneid])

    def rounded(self, value: Any, dtype: type[np.generic]) -> Any:
        """A number as if an array of the dtype had held it, for `graphdsl.compile.elementwise.rounded`."""
        return widen(convert(value, np.dtype(dtype))[()])

    # Indices

    @property
    def blockIdx(self) -> Place:
        return self.scheduler.current.block.index

    @blockIdx.setter
    def blockIdx(self, index: Place) -> None:
        """Nothing: the simulator's module sets one when it is made, and the scheduler knows better."""

    @property
    def threadIdx(self) -> Place:
        return self.scheduler.current.index

    @property
    def laneid(self) -> int:
        return self.scheduler.current.rank % WARP

    # Barriers of the block

    def syncthreads(self) -> None:
        self.scheduler.meet("block")

    def syncthreads_count(self, predicate: Any) -> int:
        return sum(map(bool, self.scheduler.meet("block", predicate).values()))

    def syncthreads_and(self, predicate: Any) -> int:
        return int(all(self.scheduler.meet("block", predicate).values()))

    def syncthreads_or(self, predicate: Any) -> int:
        return int(any(self.scheduler.meet("block", predicate).values()))

    # Warps

    def _meet_warp(self, mask: Any, value: Any = None) -> dict[int, Any]:
        """What the threads of the warp that are in ``mask`` bring, by rank."""
        mask = int(mask) & _ALL_LANES
        first = self.scheduler.current.rank // WARP * WARP
        return self.scheduler.meet((first, mask), value, _members(first, mask))

    def syncwarp(self, mask: Any = _ALL_LANES) -> None:
        self._meet_warp(mask)

    def _shuffle(self, mask: Any, value: Any, lane: int) -> Any:
        brought = self._meet_warp(mask, value)
        if not 0 <= lane < WARP:
            return value
        rank = self.scheduler.current.rank // WARP * WARP + lane
        if rank not in brought:
            raise ValueError(f"a shuffle reads from lane {lane}, which takes no part in it: the result is undefined")
        return brought[rank]

    def shfl_sync(self, mask: Any, value: Any, src_lane: Any) -> Any:
        return self._shuffle(mask, value, int(src_lane) % WARP)

    def shfl_up_sync(self, mask: Any, value: Any, delta: Any) -> Any:
        return self._shuffle(mask, value, self.laneid - int(delta))

    def shfl_down_sync(self, mask: Any, value: Any, delta: Any) -> Any:
        return self._shuffle(mask, value, self.laneid + int(delta))

    def shfl_xor_sync(self, mask: Any, value: Any, lane_mask: Any) -> Any:
        return self._shuffle(mask, value, self.laneid ^ int(lane_mask))

    def all_sync(self, mask: Any, predicate: Any) -> bool:
        return all(self._meet_warp(mask, predicate).values())

    def any_sync(self, mask: Any, predicate: Any) -> bool:
        return any(self._meet_warp(mask, predicate).values())

    def eq_sync(self, mask: Any, predicate: Any) -> bool:
        return len({bool(value) for value in self._meet_warp(mask, predicate).values()}) == 1

    def ballot_sync(self, mask: Any, predicate: Any) -> int:
        return _lane_mask(rank for rank, value in self._meet_warp(mask, predicate).items() if value)

    def match_any_sync(self, mask: Any, value: Any) -> int:
        return _lane_mask(rank for rank, other in self._meet_warp(mask, value).items() if other == value)

    def match_all_sync(self, mask: Any, value: Any) -> tuple[int, bool]:
        brought = self._meet_warp(mask, value)
        same = all(other == value for other in brought.values())
        return (_lane_mask(brought) if same else 0), same

    def activemask(self) -> int:
        first = self.scheduler.current.rank // WARP * WARP
        return _lane_mask(rank for rank in range(first, first + WARP) if self.scheduler.is_running(rank))

    def lanemask_lt(self) -> int:
        return (1 << self.laneid) - 1

    def nanosleep(self, ns: Any) -> None:
        """Nothing: the emulator has no time."""

    # Loads and stores with cache hints

    def _load(self, array: Any, index: Any) -> Any:
        return array[index]

    def _store(self, array: Any, index: Any, value: Any) -> None:
        array[index] = value

    ldca = ldcg = ldcs = ldlu = ldcv = _load
    stcg = stcs = stwb = stwt = _store

    # Integer functions. An integer of fewer than 64 bits is read from memory as one of 64, so that its width has to be
    # told from its value: 32 bits unless it needs more.

    def popc(self, value: Any) -> int:
        return f"{_bits(value)}".count("1")

    def clz(self, value: Any) -> int:
        bits = _bits(value)
        return len(bits) - len(bits.lstrip("0"))

    def ffs(self, value: Any) -> int:
        return _bits(value)[::-1].find("1") + 1

    def brev(self, value: Any) -> int:
        return int(_bits(value)[::-1], 2)

    def cbrt(self, value: Any) -> Any:
        return np.cbrt(value)


def _bits(value: Any) -> str:
    number = int(value)
    width = 32 if -(1 << 31) <= number < 1 << 32 else 64
    return f"{number & (1 << width) - 1:0{width}b}"


def _lane_mask(ranks: Any) -> int:
    """The lanes of some threads of a warp, one bit each."""
    return sum(1 << rank % WARP for rank in ranks)


@functools.lru_cache(1024)
def _members(first: int, mask: int) -> tuple[int, ...]:
    """Ranks of the threads that are in ``mask``, of the warp whose first thread has a rank."""
    return tuple(first + lane for lane in range(WARP) if mask >> lane & 1)


@functools.cache
def _names() -> dict[int, str]:
    """Names, by identity, of the objects of ``numba.cuda`` that a `DeviceApi` has an answer for."""
    answered = {*dir(DeviceApi), *vars(FakeCUDAModule(_ONE, _ONE, 0))}
    return {id(value): name for name, value in vars(cuda).items() if name in answered}


class _Index:
    """An index imported by its own name, such as ``from numba.cuda import threadIdx``."""

    def __init__(self, api: DeviceApi, name: str) -> None:
        self._of = lambda: getattr(api, name)

    x = property(lambda self: self._of().x)
    y = property(lambda self: self._of().y)
    z = property(lambda self: self._of().z)


def _new_array(kind: Kind, shape: Any, dtype: Any, alignment: Any) -> Any:
    dtype = as_dtype(dtype)
    shape = tuple(shape) if isinstance(shape, tuple) else (int(shape),)
    region = fresh(kind, math.prod(map(int, shape)) * dtype.itemsize)
    region.alignment = alignment or dtype.itemsize  # what a GPU keeps to
    return array_in(region, f"{kind} array", dtype, shape)


class _Shared:
    """Shared memory: for each block one array for each place in the code that asks, and the dynamic part for size 0."""

    def __init__(self, api: DeviceApi) -> None:
        self._api = api
        self.dynamic_bytes = 0
        self.clear()

    def clear(self) -> None:
        self._arrays: dict[Any, Any] = {}
        self._dynamic: dict[Block, Any] = {}

    def array(self, shape: Any, dtype: Any, alignment: Any = None) -> Any:
        if shape in (0, (0,)):
            return self._dynamic_array(as_dtype(dtype))
        caller = sys._getframe(1)
        place = (self._api.scheduler.current.block, caller.f_code, caller.f_lasti)
        if place not in self._arrays:
            self._arrays[place] = _new_array("shared", shape, dtype, alignment)
        return self._arrays[place]

    def _dynamic_array(self, dtype: np.dtype[Any]) -> Any:
        block = self._api.scheduler.current.block
        if block not in self._dynamic:
            self._dynamic[block] = fresh("shared", self.dynamic_bytes)
        return array_in(self._dynamic[block], "dynamic shared array", dtype, (self.dynamic_bytes // dtype.itemsize,))


class _Local:
    """Local memory: a new array for each thread that asks for one."""

    def array(self, shape: Any, dtype: Any, alignment: Any = None) -> Any:
        return _new_array("local", shape, dtype, alignment)


class _Cooperative:
    """Cooperative groups."""

    def __init__(self, api: DeviceApi) -> None:
        self._api = api

    def this_grid(self) -> _Cooperative:
        return self

    def sync(self) -> None:
        if not self._api.cooperative:
            raise RuntimeError("the blocks of a grid can only wait for each other in a cooperative launch")
        self._api.scheduler.meet_all()


class _Float16(FakeCUDAFp16):  # type: ignore[misc]  # Numba has no types
    def hfloor(self, x: Any) -> Any:
        return np.floor(x, dtype=np.float16)  # the simulator rounds up
