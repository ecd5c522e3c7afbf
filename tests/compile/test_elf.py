"""What a cubin says, against what the assembler printed when it made it."""

from __future__ import annotations

import contextlib
import re
import struct
from typing import Any

import pytest
from cuda.core import Linker, LinkerOptions, ObjectCode
from hypothesis import given
from hypothesis import strategies as st

from graphdsl.compile.elf import Resources, kernels, read_resources, target_of

TARGETS = [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)]


def kernel_ptx(*, values: int = 1, shared: str = "", bounds: str = "") -> str:
    """A kernel that keeps ``values`` numbers alive at once, so that it needs that many registers and some."""
    loads = "\n".join(f"ld.global.u32 %r{i}, [%rd0+{4 * i}];" for i in range(values))
    stores = "\n".join(f"st.global.u32 [%rd0+{4 * i}], %r{values - 1 - i};" for i in range(values))
    touched = "st.shared.u32 [buffer], %r0; bar.sync 0; ld.shared.u32 %r0, [buffer+8];" if "buffer" in shared else ""
    return f"""
        .version 8.0
        .target sm_70
        .address_size 64
        {shared if ".extern" in shared else ""}
        .visible .entry other() {{ ret; }}
        .visible .entry kernel(.param .u8 a, .param .u64 b, .param .f32 c, .param .u16 d) {bounds} {{
            .reg .u64 %rd<1>; .reg .u32 %r<{values}>;
            {"" if ".extern" in shared else shared}
            ld.param.u64 %rd0, [b];
            {loads}
            {touched}
            bar.sync 0;
            {stores}
            ret;
        }}"""


def assembled(ptx: str, target: tuple[int, int]) -> tuple[bytes, str]:
    """The cubin, and what the assembler says about it."""
    # What nvJitLink has in its cache it does not assemble again, and then says nothing.
    options = LinkerOptions(arch=f"sm_{target[0]}{target[1]}", ptxas_options=["-v"], no_cache=True)
    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
    return linker.link("cubin").code, linker.get_info_log().split("'kernel'")[1]


def said(log: str, what: str) -> int:
    found = re.search(rf"(\d+) {what}", log)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"values": 60},
        {"values": 200, "shared": ".shared .align 4 .b8 buffer[400];"},
        {"shared": ".shared .align 4 .b8 buffer[48000];", "bounds": ".maxntid 256"},
        {"shared": ".extern .shared .align 4 .b8 buffer[];"},
    ],
)
def test_registers_and_shared_memory_are_those_the_assembler_says(target: tuple[int, int], options: Any) -> None:
    cubin, log = assembled(kernel_ptx(**options), target)
    found = read_resources(cubin, "kernel", target)
    assert found.registers == said(log, "registers")
    assert found.registers >= options.get("values", 1)
    assert found.shared_bytes == said(log, "bytes smem")
    assert found.parameters == ((0, 1), (8, 8), (16, 4), (20, 2))
    assert found.launch_bound == (256 if "bounds" in options else None)
    assert read_resources(cubin, "other", target).parameters == ()


@pytest.mark.parametrize(
    ("bounds", "threads"), [(".maxntid 64, 4, 2", 512), (".reqntid 96", 96), (".maxnreg 32", None)]
)
def test_launch_bounds(bounds: str, threads: int | None) -> None:
    cubin, _ = assembled(kernel_ptx(bounds=bounds), (9, 0))
    found = read_resources(cubin, "kernel", (9, 0))
    assert found.launch_bound == threads
    assert found.block == ((96, 1, 1) if "reqntid" in bounds else None)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_in_a_cubin(target: tuple[int, int]) -> None:
    cubin, _ = assembled(kernel_ptx(), target)
    assert kernels(cubin) == ["kernel", "other"]
    assert target_of(cubin) == target


def test_the_target_of_cubins_of_older_toolkits() -> None:
    # Until CUDA 12 the ABI version was 7, and the compute capability the lowest byte of the flags.
    header = bytearray(_CUBIN)
    header[8] = 7
    struct.pack_into("<I", header, 48, 0x5A055A)
    assert target_of(bytes(header)) == (9, 0)
    for wrong in (b"", b"\x7fELF"):
        with pytest.raises(ValueError, match="not a cubin"):
            target_of(wrong)
        with pytest.raises(ValueError, match="not a cubin"):
            kernels(wrong)


def test_a_kernel_that_is_not_there_is_an_error() -> None:
    cubin, _ = assembled(kernel_ptx(), (9, 0))
    with pytest.raises(ValueError, match="not a cubin with the kernel missing"):
        read_resources(cubin, "missing", (9, 0))


@given(st.data())
def test_damaged_cubins_raise_nothing_but_value_errors(data: st.DataObject) -> None:
    cubin = bytearray(_CUBIN)
    for _ in range(data.draw(st.integers(1, 4))):
        cubin[data.draw(st.integers(0, len(cubin) - 1))] ^= data.draw(st.integers(1, 255))
    cubin = cubin[: data.draw(st.integers(0, len(cubin)))]
    with contextlib.suppress(ValueError):
        found = read_resources(bytes(cubin), "kernel", (9, 0))
        assert isinstance(found.registers, int)


_CUBIN, _ = assembled(kernel_ptx(shared=".shared .align 4 .b8 buffer[400];"), (9, 0))


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
        assert Resources(registers, 0, None, ()).max_threads == threads
    assert Resources(200, 0, 96, ()).max_threads == 96
    assert Resources(200, 0, 512, ()).max_threads == 256
