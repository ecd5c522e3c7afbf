"""What code says of waits, triggers and conditions, for every target and from every compiler."""

from __future__ import annotations

from typing import Any

import pytest
from cuda.core import Program, ProgramOptions
from numba import cuda
from numba.cuda import types
from numba.cuda.cudadrv.linkable_code import CUSource

from graphdsl import device
from graphdsl.compile.elf import opcodes
from graphdsl.compile.graph_calls import GraphCalls, read_graph_calls
from graphdsl.compile.link import Code, arch_of, link
from graphdsl.compile.numba import compile_kernel
from graphdsl.declare.kernel import Kernel, as_kernel

TARGETS = [(9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]
INTS = types.int32[::1]

SOURCE = """
__device__ __noinline__ int waits(const int *x) { asm volatile("griddepcontrol.wait;" ::: "memory"); return x[1]; }
extern "C" __global__ void waiting(const int *x, int *y) { y[0] = waits(x); }
extern "C" __global__ void triggering(const int *x, int *y) {
    if (x[0]) asm volatile("griddepcontrol.launch_dependents;");
    y[0] = 1;
}
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned value);
extern "C" __global__ void setting(unsigned long long *handles, unsigned long long handle) {
    cudaGraphSetConditional(handles[0], 1);
}
extern "C" __global__ void nothing() {}
"""


def nothing(x):  # type: ignore[no-untyped-def]
    x[0] = 1


def waits(x):  # type: ignore[no-untyped-def]
    device.grid_dependency_wait()
    x[0] = 1


def triggers(x):  # type: ignore[no-untyped-def]
    if x[0] > 1:
        device.launch_dependents()


def calls(function: Any, *kinds: Any, target: tuple[int, int] = (9, 0), **options: Any) -> GraphCalls:
    return compile_kernel(Kernel(function, (), options), kinds, target).graph_calls


@pytest.mark.parametrize("target", TARGETS)
def test_waits_and_triggers_of_numba_kernels(target: tuple[int, int]) -> None:
    assert calls(nothing, INTS, target=target) == (False, False, frozenset())
    assert calls(waits, INTS, target=target) == (True, False, frozenset())
    assert calls(triggers, INTS, target=target) == (False, True, frozenset())
    assert calls(waits, INTS, target=target, debug=True) == (True, False, frozenset())


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_one_cubin_are_told_apart(target: tuple[int, int]) -> None:
    # Code that is not inlined stands beside all kernels, and may be called by each.
    cubin = link([Code("cu", SOURCE.encode(), "source.cu")], target)
    assert read_graph_calls(cubin, "waiting", target).waits is True
    assert read_graph_calls(cubin, "triggering", target).triggers is True
    assert read_graph_calls(cubin, "waiting", target).triggers is False
    assert read_graph_calls(cubin, "nothing", target).triggers is False
    whole = Program(SOURCE.replace("__noinline__", ""), "c++", options=ProgramOptions(arch=arch_of(target)))
    cubin = whole.compile("cubin").code
    assert [read_graph_calls(cubin, name, target)[:2] for name in ("waiting", "triggering", "nothing")] == [
        (True, False),
        (False, True),
        (False, False),
    ]


def test_devices_before_hopper_neither_wait_nor_trigger() -> None:
    assert calls(nothing, INTS, target=(8, 0)) == (False, False, frozenset())


def test_nothing_is_claimed_of_code_that_is_not_known() -> None:
    cubin = compile_kernel(as_kernel(waits), (INTS,), (9, 0)).cubin
    assert read_graph_calls(b"", "kernel", (9, 0)) == (None, None, None)
    assert read_graph_calls(cubin, "another", (9, 0)) == (None, None, None)
    entry = compile_kernel(as_kernel(waits), (INTS,), (9, 0)).entry
    for end in range(0, len(cubin), 97):
        assert read_graph_calls(cubin[:end], entry, (9, 0)).waits in (None, True)
    assert read_graph_calls(cubin, entry, (13, 0))[:2] == (None, None)
    with pytest.raises(ValueError, match="another"):
        opcodes(cubin, "another")


def test_device_functions_that_a_kernel_calls_count() -> None:
    @cuda.jit(device=True)
    def inner(handle, value):  # type: ignore[no-untyped-def]
        device.launch_dependents()
        device.set_condition(handle, value)

    def outer(handle, x):  # type: ignore[no-untyped-def]
        inner(handle, x[0])

    assert calls(outer, types.uint64, INTS) == (False, True, frozenset({0}))


def test_code_that_a_kernel_links_counts() -> None:
    sync = 'extern "C" __device__ int sync(int *r) { asm volatile("griddepcontrol.wait;" ::: "memory"); return 0; }'
    external = cuda.declare_device("sync", types.int32(), link=CUSource(sync, name="sync.cu"))

    def kernel(x):  # type: ignore[no-untyped-def]
        x[0] = external()

    assert calls(kernel, INTS).waits is True


# Conditions


def sets_second(x, handle):  # type: ignore[no-untyped-def]
    if cuda.grid(1) == 0:
        device.set_condition(handle, x[0])


def sets_either(a, b, x):  # type: ignore[no-untyped-def]
    if x[0]:
        device.set_condition(a, 1)
    else:
        device.set_condition(b, 2)


def sets_from_memory(handles):  # type: ignore[no-untyped-def]
    device.set_condition(handles[0], 1)


def sets_computed(handle, x):  # type: ignore[no-untyped-def]
    device.set_condition(handle + types.uint64(x[0]), 1)


def sets_in_a_loop(handle, x):  # type: ignore[no-untyped-def]
    for i in range(x[0]):
        device.set_condition(handle, i)
        x[1] += i


def sets_of_a_pair(pair):  # type: ignore[no-untyped-def]
    device.set_condition(pair[1], 1)


@pytest.mark.parametrize(
    ("function", "kinds", "places"),
    [
        pytest.param(sets_second, (INTS, types.uint64), {7}, id="one"),
        pytest.param(sets_either, (types.uint64, types.uint64, INTS), {0, 1}, id="two"),
        pytest.param(sets_in_a_loop, (types.uint64, INTS), {0}, id="in a loop"),
        pytest.param(sets_of_a_pair, (types.UniTuple(types.uint64, 2),), {1}, id="of a tuple"),
        pytest.param(sets_from_memory, (types.uint64[::1],), None, id="from memory"),
        pytest.param(sets_computed, (types.uint64, INTS), None, id="computed"),
    ],
)
def test_the_parameters_that_are_set(function: Any, kinds: Any, places: set[int] | None) -> None:
    assert calls(function, *kinds).conditions == places


def test_places_lead_to_arguments() -> None:
    image = compile_kernel(as_kernel(sets_second), (INTS, types.uint64), (9, 0))
    (place,) = image.graph_calls.conditions or ()
    assert image.layout.names[image.layout.leaves[place].argument] == "handle"


def test_without_ptx_a_condition_that_is_set_cannot_be_told() -> None:
    cubin = link([Code("cu", SOURCE.encode(), "source.cu")], (9, 0))
    assert read_graph_calls(cubin, "setting", (9, 0)).conditions is None


HAND_WRITTEN = """
.version 8.0
.target sm_90
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 a, .param .b32 b);
.visible .entry kernel(.param .u32 n, /* , */ .param .align 8 .b64 first, .param .b64 second) {
    .reg .b64 %h<4>; .reg .b32 %v<2>; .reg .pred %p;
    ld.param.u32 %v0, [n];
    setp.eq.u32 %p, %v0, 0;
    ld.param.u64 %h0, [second];
    mov.b64 %h1, %h0;  // a copy
    BODY
    ret;
}
"""
CALL = "{ .param .b64 p; .param .b32 q; st.param.b64 [p], REG; st.param.b32 [q], %v0; call.uni cudaGraphSetConditional, (p, q); }"  # noqa: E501


@pytest.mark.parametrize(
    ("body", "places"),
    [
        pytest.param(CALL.replace("REG", "%h0"), {2}, id="plain"),
        pytest.param(CALL.replace("REG", "%h1"), {2}, id="moved"),
        pytest.param(CALL.replace("call", "@%p call").replace("REG", "%h1"), {2}, id="predicated"),
        pytest.param("@%p add.s64 %h1, %h1, 1;" + CALL.replace("REG", "%h1"), None, id="written again"),
        pytest.param("L: @!%p ld.param.u64 %h1, [first];" + CALL.replace("REG", "%h1"), None, id="either"),
        pytest.param("mov.b64 {%v0, %v1}, %h1; mov.b64 %h2, {%v1, %v0};" + CALL.replace("REG", "%h2"), None, id="swap"),
        pytest.param("mov.b64 %h2, %h3; mov.b64 %h3, %h2;" + CALL.replace("REG", "%h2"), None, id="nothing"),
    ],
)
def test_registers_are_followed_as_long_as_they_are_written_once(body: str, places: set[int] | None) -> None:
    ptx = HAND_WRITTEN.replace("BODY", body)
    cubin = link([Code("ptx", ptx.encode(), "kernel")], (9, 0))
    assert read_graph_calls(cubin, "kernel", (9, 0), ptx).conditions == places
