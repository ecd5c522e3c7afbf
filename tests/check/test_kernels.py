"""Rules GD201 to GD214: arguments, compilation, and limits of launches."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.check import check
from graphdsl.declare.limits import limits_of
from tests.check.conftest import scale
from tests.check.findings import cheap, errors_of, judged, only


@cuda.jit
def guided(x, y, gain, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = gain * x[i]


@cuda.jit
def tiled(x):
    tile = cuda.shared.array(1000, np.float64)
    tile[cuda.threadIdx.x] = x[cuda.grid(1)]
    cuda.syncthreads()
    x[cuda.grid(1)] = tile[0]


@cuda.jit(launch_bounds=64)
def narrow(x):
    x[cuda.grid(1)] = 1.0


@cuda.jit
def unknown_name(x):
    x[0] = not_defined_anywhere  # noqa: F821


@cuda.jit
def unsupported(x):
    x[0] = [str(x[0])][0]


def launch(demo, kernel=scale, **options):
    args = (demo.x, demo.y, demo.gain, demo.n)
    return demo.g.kernel(kernel, **{"grid": 4, "block": 256, "args": args, **options})


def test_missing_arguments_are_named(demo):
    launch(demo, args=(demo.x, demo.y))
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field, found.value) == ("GD201", "scale", "args", "missing gain, n")


def test_surplus_arguments_are_named(demo):
    launch(demo, args=(demo.x, demo.y, demo.gain, demo.n, 7, demo.raw))
    found = only(cheap(demo.g))
    assert (found.code, found.field, found.value) == ("GD201", "args", f"surplus 7, {demo.raw}")


def test_surplus_arguments_are_held_to_the_rules_too(demo):
    launch(demo, args=(demo.x, demo.y, demo.gain, demo.n, demo.staged))
    assert judged(cheap(demo.g)) == [("GD201", "scale", "args"), ("GD203", "scale", "args[4]")]


def test_a_wrong_number_of_arguments_does_not_hide_the_launch(demo):
    launch(demo, args=(demo.x,), grid=0)
    assert judged(check(demo.g)) == [("GD201", "scale", "args"), ("GD211", "scale", "grid")]


def test_arguments_that_a_declared_signature_does_not_take(demo):
    declared = "void(float32[::1], float64[::1], float32, int64)"
    launch(demo, signature=declared)
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field) == ("GD202", "scale", "argument 'y'")
    assert found.value == f"{demo.y}"


def test_arguments_that_a_declared_signature_takes(demo):
    launch(demo, signature="void(float32[:], float32[::1], float64, int64)")
    assert judged(cheap(demo.g)) == []


def test_each_node_is_told_about_its_own_operand(demo):
    declared = "void(float64[::1], float32[::1], float32, int32)"
    launch(demo, signature=declared, name="first")
    launch(demo, signature=declared, args=(demo.y, demo.y, demo.gain, demo.n), name="second")
    found = cheap(demo.g).errors
    assert [(each.node, each.value) for each in found] == [("first", str(demo.x)), ("second", str(demo.y))]


def test_an_argument_of_no_type_that_a_kernel_takes(demo):
    launch(demo, args=(np.zeros(3), demo.y, demo.gain, demo.n))
    found = only(cheap(demo.g))
    assert (found.code, found.field) == ("GD202", "argument 'x'")
    assert "external" in found.remedy


def test_one_wrong_argument_hides_no_other(demo):
    launch(demo, args=(np.zeros(3), demo.y, "text", demo.n), name="of_no_type")
    declared = "void(float64[::1], float32[::1], int16, int32)"
    launch(demo, args=(demo.x, [demo.y], demo.gain, demo.n), signature=declared, name="declared")
    assert judged(cheap(demo.g)) == [
        ("GD202", "of_no_type", "argument 'x'"),
        ("GD202", "of_no_type", "argument 'gain'"),
        ("GD202", "declared", "argument 'x'"),
        ("GD202", "declared", "argument 'y'"),
        ("GD202", "declared", "argument 'gain'"),
    ]


@pytest.mark.parametrize("signature", ["void(float32)", "what?", "float32(float32[:], float32[:], float32, int32)"])
def test_a_signature_that_is_none(demo, signature):
    launch(demo, signature=signature)
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field) == ("GD202", "scale", "signature")
    assert found.location == demo.g.node("scale").location


@pytest.mark.parametrize("value", [127, -128, 0, True])
def test_literals_that_a_narrow_signature_takes(demo, value):
    launch(demo, args=(demo.x, demo.y, demo.gain, value), signature="void(float32[::1], float32[::1], float32, int8)")
    assert judged(cheap(demo.g)) == []


@pytest.mark.parametrize("value", [128, -129, 1.0])
def test_literals_that_a_narrow_signature_does_not_take(demo, value):
    """One that fits stands first: nodes are gathered by the types of arguments, and these differ in value only."""
    declared = "void(float32[::1], float32[::1], float32, int8)"
    launch(demo, args=(demo.x, demo.y, demo.gain, -128), signature=declared, name="right")
    launch(demo, args=(demo.x, demo.y, demo.gain, value), signature=declared, name="wrong")
    assert judged(cheap(demo.g)) == [("GD202", "wrong", "argument 'n'")]


def test_floats_that_a_narrow_signature_does_not_take(demo):
    declared = "void(float32[::1], float32[::1], float32, int32)"
    launch(demo, args=(demo.x, demo.y, 1e30, demo.n), signature=declared, name="right")
    launch(demo, args=(demo.x, demo.y, 1e39, demo.n), signature=declared, name="wrong")
    assert judged(cheap(demo.g)) == [("GD202", "wrong", "argument 'gain'")]


def test_pageable_arguments(demo):
    launch(demo, args=(demo.staged[:512], demo.y, demo.gain, demo.n), name="wrong")
    launch(demo, args=((demo.x, demo.staged), demo.y, demo.gain, demo.n), name="in_tuple")
    launch(demo, args=(demo.raw, demo.y, demo.gain, demo.n), name="right")
    demo.g.host(print, args=demo.staged)
    assert judged(cheap(demo.g)) == [
        ("GD203", "wrong", "argument 'x'"),
        ("GD203", "in_tuple", "argument 'x'"),
    ]


@pytest.mark.parametrize(("arrays", "right"), [(73, True), (74, False)])
def test_bytes_of_parameters(demo, arrays, right):
    """A one-dimensional array takes 56 bytes, so 73 of them and an int64 are 4,096 bytes."""
    small = dataclasses.replace(limits_of("sm_90"), parameter_bytes=4096)
    demo.g.kernel(lambda arrays, n: None, grid=1, block=1, args=((demo.x,) * arrays, 1))
    found = judged(cheap(demo.g, target=small))
    assert found == ([] if right else [("GD204", "lambda", "args")])
    assert judged(cheap(demo.g)) == []


def test_a_kernel_that_does_not_compile_is_found_once_for_all_its_nodes(demo):
    for name in ("first", "second"):
        launch(demo, unsupported, args=demo.x, name=name)
    launch(demo, unknown_name, args=demo.x, name="third")
    launch(demo, guided, name="right")
    found = errors_of(check(demo.g))
    assert [(each.code, each.node, each.nodes) for each in found] == [
        ("GD205", "first", ("first", "second")),
        ("GD205", "third", ("third",)),
    ]
    assert "not_defined_anywhere" in found[1].message


def test_nothing_is_compiled_on_request(demo):
    launch(demo, unsupported, args=demo.x)
    assert judged(cheap(demo.g)) == []


@pytest.mark.parametrize("grid", [0, -1, 2**31, (1, 65536), (1, 1, 65536), (1, 0), (1, 1, -5)])
def test_grids_out_of_range(demo, grid):
    launch(demo, grid=grid)
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field) == ("GD211", "scale", "grid")


@pytest.mark.parametrize("grid", [1, 2**31 - 1, (1, 65535), (1, 1, 65535)])
def test_grids_in_range(demo, grid):
    launch(demo, grid=grid)
    assert judged(cheap(demo.g)) == []


def test_all_wrong_dimensions_are_named(demo):
    launch(demo, grid=(0, 65536, 1))
    rule = only(cheap(demo.g)).rule
    assert "1 to 2147483647 blocks in x, not 0" in rule
    assert "1 to 65535 blocks in y, not 65536" in rule
    assert "z" not in rule


def test_only_wrong_dimensions_are_named(demo):
    launch(demo, grid=(2**31 - 1, 65536, 65535))
    assert only(cheap(demo.g)).rule.endswith("a grid has 1 to 65535 blocks in y, not 65536")


def test_an_unknown_dimension_hides_no_other(demo):
    zero = demo.g.param("zero", np.int32, default=0)
    launch(demo, grid=(demo.n // zero, 65536), name="grid")
    launch(demo, block=(1, demo.n // zero, 65), name="block")
    launch(demo, block=(1, 1, demo.n // zero), name="right otherwise")
    assert judged(cheap(demo.g)) == [
        ("GD114", "grid", "grid"),
        ("GD114", "block", "block"),
        ("GD114", "right otherwise", "block"),
        ("GD211", "grid", "grid"),
        ("GD212", "block", "block"),
    ]


def test_a_grid_from_an_expression_says_what_it_came_from(demo):
    launch(demo, grid=gd.cdiv(demo.n, 256))
    found = only(cheap(demo.g, values={"n": 0}))
    assert found.value == (0, 1, 1)
    assert found.remedy.startswith("It is (cdiv(n, 256), 1, 1), and n = 0.")


@pytest.mark.parametrize("block", [0, -1, 1025, (1, 1025), (1, 1, 65), (32, 33), (16, 16, 5)])
def test_blocks_out_of_range(demo, block):
    launch(demo, block=block)
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field) == ("GD212", "scale", "block")


@pytest.mark.parametrize("block", [1, 1024, (1, 1024), (1, 1, 64), (32, 32), (16, 16, 4)])
def test_blocks_in_range(demo, block):
    launch(demo, block=block)
    assert judged(cheap(demo.g)) == []


def test_a_block_of_more_threads_than_the_kernel_is_compiled_for(demo):
    launch(demo, narrow, args=demo.x, block=65, name="wrong")
    launch(demo, narrow, args=demo.x, block=1024, name="largest")
    launch(demo, narrow, args=demo.x, block=64, name="right")
    found = errors_of(check(demo.g))
    assert [(each.code, each.node, each.field, each.value) for each in found] == [
        ("GD213", "wrong", "block", (65, 1, 1)),
        ("GD213", "largest", "block", (1024, 1, 1)),
    ]


def test_a_block_that_no_kernel_can_have_is_found_once(demo):
    launch(demo, narrow, args=demo.x, block=2048)
    assert judged(check(demo.g)) == [("GD212", "narrow", "block")]


@pytest.mark.parametrize(("target", "most"), [("sm_80", 166912), ("sm_86", 101376), ("sm_90", 232448)])
def test_shared_memory_by_target(demo, target, most):
    launch(demo, shared_bytes=most, name="right")
    launch(demo, shared_bytes=most + 1, name="wrong")
    launch(demo, shared_bytes=-1, name="negative")
    assert judged(cheap(demo.g, target=target)) == [
        ("GD214", "wrong", "shared_bytes"),
        ("GD214", "negative", "shared_bytes"),
    ]


def test_shared_memory_of_the_kernel_itself_counts(demo):
    launch(demo, tiled, args=demo.x, shared_bytes=232448 - 8000, name="right")
    launch(demo, tiled, args=demo.x, shared_bytes=232448 - 7999, name="wrong")
    found = only(check(demo.g))
    assert (found.code, found.node, found.field, found.value) == ("GD214", "wrong", "shared_bytes", 224449)
    assert "8000" in found.rule
