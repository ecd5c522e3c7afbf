"""How many blocks a multiprocessor holds, against what cuda_occupancy.h of the toolkit says."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from cuda import pathfinder
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.compile.occupancy import blocks_of_multiprocessor, max_threads
from graphdsl.compile.placement import Placement
from graphdsl.declare.limits import limits_of

TARGETS = ["sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"]

PROGRAM = r"""
#include <cuda_occupancy.h>

int blocks(int major, int minor, int threads_of_sm, int shared_of_block, int optin, int shared_of_sm, int reserved,
           int registers, int shared, int barriers, int threads, int dynamic) {
    cudaOccDeviceProp device = {major, minor, 1024, threads_of_sm, 65536, 65536, 32, shared_of_block, shared_of_sm, 1,
                                optin, reserved};
    cudaOccFuncAttributes kernel = {0};
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = shared;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = optin - shared;
    kernel.numBlockBarriers = barriers;
    cudaOccDeviceState state = {0};
    state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
    cudaOccResult result = {0};
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, dynamic)) return -1;
    return result.activeBlocksPerMultiprocessor;
}
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("cc")
    headers = pathfinder.locate_nvidia_header_directory("cudart")
    if compiler is None or headers is None:
        pytest.skip("there is no C compiler, or no header of the toolkit")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "blocks.c").write_text(PROGRAM)
    library = folder / "blocks.so"
    command = [compiler, "-shared", "-fPIC", f"-I{headers.abs_path}", str(folder / "blocks.c"), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(library)).blocks


@given(
    target=st.sampled_from(TARGETS),
    threads=st.integers(1, 1024),
    registers=st.integers(16, 255),
    static=st.sampled_from([0, 1, 4096, 40_000]),
    dynamic=st.integers(0, 227 * 1024),
    barriers=st.integers(1, 16),
)
def test_blocks_are_those_of_the_toolkit(reference, target, threads, registers, static, dynamic, barriers):
    limits = limits_of(target)
    threads = min(threads, max_threads(registers, None))
    dynamic = min(dynamic, limits.shared_optin_bytes - static)
    image: Any = SimpleNamespace(registers=registers, shared_bytes=static, placement=Placement(barriers=barriers))
    expected = reference(
        *limits.compute_capability,
        limits.multiprocessor_threads,
        limits.shared_bytes,
        limits.shared_optin_bytes,
        limits.multiprocessor_shared_bytes,
        limits.reserved_shared_bytes,
        registers,
        static,
        barriers,
        threads,
        dynamic,
    )
    found = blocks_of_multiprocessor(limits, threads, dynamic, image)
    assert found == expected >= 1
    assert blocks_of_multiprocessor(limits, threads, dynamic) >= found, "without an image, an upper bound"


def test_threads_that_registers_allow() -> None:
    # 65536 registers; 32 threads a warp; registers in units of 8, warps in fours.
    for registers, threads in (
        (16, 1024),
        (64, 1024),
        (65, 896),
        (80, 768),
        (128, 512),
        (129, 384),
        (200, 256),
        (255, 256),
    ):
        assert max_threads(registers, None) == threads
    assert max_threads(200, 96) == 96
    assert max_threads(200, 512) == 256
