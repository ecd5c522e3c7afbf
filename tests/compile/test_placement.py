"""What code says of clusters, barriers and waits for the grid."""

from __future__ import annotations

from typing import Any

import pytest
from cuda.core import Program, ProgramOptions
from numba import cuda
from numba.cuda import types

from graphdsl.compile.link import Code, link
from graphdsl.compile.numba import compile_kernel
from graphdsl.compile.placement import Placement, read_placement
from graphdsl.declare.kernel import Kernel

TARGETS = [(9, 0), (10, 0), (12, 0)]
INTS = types.int32[::1]


def ptx(directives: str = "", body: str = "") -> str:
    return f"""
        .version 8.0
        .target sm_90
        .address_size 64
        .visible .entry kernel(.param .u64 p) {directives} {{
            .reg .b32 %r<3>; .reg .b64 %d<3>;
            mov.u32 %r1, %cluster_nctarank; ld.param.u64 %d1, [p]; cvta.to.global.u64 %d2, %d1;
            st.global.u32 [%d2], %r1; {body}
            ret;
        }}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ptx(), Placement()),
        (ptx(".explicitcluster"), Placement(needs_cluster=True)),
        (ptx(".reqnctapercluster 4"), Placement((4, 1, 1))),
        (ptx(".explicitcluster .reqnctapercluster 2, 2, 1"), Placement((2, 2, 1), needs_cluster=True)),
        (ptx(".maxclusterrank 8"), Placement(max_cluster=8)),
        (ptx(body="bar.sync 0;"), Placement()),
        (ptx(body="bar.sync 0; bar.sync 1; bar.sync 2;"), Placement(barriers=3)),
        (ptx(body="mov.u32 %r2, %envreg2; st.global.u32 [%d2], %r2;"), Placement(syncs_grid=True)),
    ],
)
def test_what_ptx_asks_for(target: tuple[int, int], text: str, expected: Placement) -> None:
    assert read_placement(link([Code("ptx", text.encode(), "kernel")], target), "kernel", text) == expected


def test_clusters_of_cuda_cpp() -> None:
    source = 'extern "C" __global__ void __cluster_dims__(2, 1, 1) kernel(int *x) { x[0] = 1; }'
    cubin = Program(source, "c++", options=ProgramOptions(arch="sm_90")).compile("cubin").code
    assert read_placement(cubin, "kernel").cluster == (2, 1, 1)


def placement(function: Any, target: tuple[int, int] = (9, 0), **options: Any) -> Placement:
    return compile_kernel(Kernel(function, (), options), (INTS,), target).placement


def plain(x):  # type: ignore[no-untyped-def]
    x[0] = 1


@cuda.jit(device=True)
def wait():  # type: ignore[no-untyped-def]
    cuda.cg.this_grid().sync()


def waiting(x):  # type: ignore[no-untyped-def]
    x[0] = 1
    wait()
    x[1] = 1


@pytest.mark.parametrize("target", [(7, 5), (8, 0), (9, 0), (12, 0)])
def test_a_wait_for_the_grid_is_compiled_and_seen(target: tuple[int, int]) -> None:
    assert placement(waiting, target).syncs_grid
    assert placement(plain, target) == Placement()


def test_launch_bounds_bound_clusters() -> None:
    assert placement(plain, launch_bounds=(128, 1, 4)).max_cluster == 4


def test_kernels_of_one_text_are_told_apart() -> None:
    waits, alone = ptx(body="mov.u32 %r2, %envreg2;"), ptx().partition(".address_size 64")[2]
    both = waits + alone.replace("entry kernel", "entry plain")
    assert read_placement(b"", "kernel", both).syncs_grid
    assert not read_placement(b"", "plain", both).syncs_grid


def test_what_cannot_be_read_asks_for_nothing() -> None:
    for cubin in (b"", b"no cubin", b"\x7fELF\x02\x01" + bytes(100)):
        assert read_placement(cubin, "kernel") == Placement()
