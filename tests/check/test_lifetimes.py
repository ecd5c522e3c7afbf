from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd

PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x)\n{\nret;\n}\n"


@pytest.fixture
def g() -> gd.Graph:
    return gd.Graph("demo")


def judged(graph: gd.Graph) -> list[tuple[str, str, str | None, str]]:
    report = graph.check(compile=False)
    return [(each.code, each.node, each.field, each.value) for each in report if each.code in ("GD406", "GD407")]


@pytest.fixture
def total(g):
    return g.device_array("total", 8, np.float32, lifetime="launch")


@pytest.fixture
def out(g):
    return g.host_array("out", 8, np.float32)


def test_what_is_read_first_is_an_error(g, total, out):
    read = g.memcpy(out, total, name="read")
    assert judged(g) == [("GD406", "read", "source", "total")]
    (found,) = g.check(compile=False).errors
    assert (
        found.rule
        == "'total' is undefined at the start of a launch: node 'read' reads it, and nothing writes it before"
    )
    assert found.remedy == 'Write it first, or declare it with lifetime="persistent".'
    write = g.memset(total, 0, name="write")
    assert [code for code, *_ in judged(g)] == ["GD406"]  # they are not ordered
    write >> read
    assert judged(g) == []


def test_a_kernel_that_reads_first_is_an_error(g, total):
    def add(x):
        x[0] += 1

    g.kernel(add, grid=1, block=1, args=(total,), name="add")
    assert judged(g) == [("GD406", "add", "argument 'x'", "total")]


def test_a_part_is_a_warning(g, total, out):
    g.memset(total[:4], 0, name="write") >> g.memcpy(out, total, name="read")
    assert judged(g) == [("GD407", "read", "source", "total")]
    assert g.check(compile=False).ok


def test_both_halves_are_the_whole(g, total, out):
    halves = [g.memset(total[:4], 0), g.memset(total[4:], 0)]
    halves >> g.empty() >> g.memcpy(out, total)
    assert judged(g) == []


def test_a_body_that_may_not_run_is_a_warning(g, total, out):
    with g.if_(g.condition("again", default=0), name="branch") as body:
        body.memset(total, 0)
    g.memcpy(out, total, name="read", after=g.node("branch"))
    assert [(code, node) for code, node, *_ in judged(g)] == [("GD407", "read")]


def test_code_that_nobody_can_read_is_a_warning(g, total, out):
    kernel = gd.ptx(PTX, "k", signature="float* x")
    g.kernel(kernel, grid=1, block=1, args=(total,), name="fill") >> g.memcpy(out, total, name="read")
    assert [(code, node) for code, node, *_ in judged(g)] == [("GD407", "fill")]


def test_what_is_said_of_code_counts(g, total, out):
    kernel = gd.ptx(PTX, "k", signature="float* x")
    g.kernel(kernel, grid=1, block=1, args=(total,), name="fill", reads=[], writes=[total]) >> g.memcpy(
        out, total, name="read"
    )
    assert judged(g) == []


def test_what_only_lives_for_a_launch_need_not_be_read(g, total):
    g.memset(total, 0)
    assert judged(g) == []


@pytest.mark.parametrize("lifetime", ["auto", "persistent"])
def test_other_lifetimes_are_not_judged(g, out, lifetime):
    g.memcpy(out, g.device_array("x", 8, np.float32, lifetime=lifetime))
    assert judged(g) == []


@pytest.mark.parametrize("lifetime", ["forever", None, 3, ["launch"]])
def test_a_lifetime_is_one_of_three(g, lifetime):
    with pytest.raises(gd.DeclarationError, match='"auto", "launch" or "persistent"') as caught:
        g.device_array("x", 8, np.float32, lifetime=lifetime)
    assert (caught.value.field, caught.value.value) == ("lifetime of x", repr(lifetime))
