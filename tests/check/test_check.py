"""The check as a whole: one defect hides no other, work is shared, and updates are held to the same rules."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from numba import cuda

import graphdsl as gd
from graphdsl.check import check, check_launch, check_nodes, touched
from graphdsl.check.context import Context
from graphdsl.compile import numba as compiler
from graphdsl.compile import signature
from graphdsl.declare.limits import limits_of
from graphdsl.declare.targets import targets_of
from tests.check.conftest import scale
from tests.check.findings import cheap, codes, in_any_order, judged, only

SM_90 = limits_of("sm_90")
ON_SM_90 = targets_of(SM_90)


@cuda.jit
def increase(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] += 1


def test_a_right_graph_passes_whole(demo):
    load = demo.g.memcpy(demo.x, demo.raw)
    run = demo.g.kernel(increase, grid=gd.cdiv(demo.n, 256), block=256, args=(demo.x, demo.n))
    load >> run >> demo.g.memcpy(demo.raw, demo.x)
    report = check(demo.g)
    assert judged(report) == []
    assert report.ok
    assert (report.graph, report.target) == ("demo", "sm_90")


def test_one_defect_hides_no_other(demo):
    g = demo.g
    zero, unset = g.param("zero", np.int32, default=0), g.param("unset", np.int32)
    other = gd.Graph("other")
    stranger = other.device_array("stranger", 4, np.float32)
    a = g.kernel(scale, grid=0, block=2048, args=(demo.staged, demo.y, demo.gain), shared_bytes=10**6)
    b = g.kernel(scale, grid=demo.n // zero, block=256, args=(demo.x[:unset], demo.y, demo.gain, demo.n))
    c = g.memcpy(demo.x, g.host_array("odd", 3, np.int64))
    d = g.memset(stranger, 1e300)
    e = g.memcpy(demo.x[: demo.n + 1], demo.x, nbytes=0)
    a >> b >> a
    c >> c
    d >> e
    d >> e
    g.edge(e, other.empty())
    report = check(g, values={"no such param": 1, "n": 2000})
    assert codes(report) == {
        *("GD101", "GD102", "GD103", "GD104", "GD105"),
        *("GD111", "GD112", "GD114"),
        *("GD201", "GD203", "GD211", "GD212", "GD214"),
        *("GD301", "GD303", "GD304", "GD305", "GD311"),
    }
    assert all(found.message in str(problem_of(report)) for found in report.errors)


def problem_of(report):
    with pytest.raises(gd.CheckError) as caught:
        report.raise_for_errors()
    return caught.value


def test_every_finding_of_a_node_says_where_it_was_declared(demo):
    node = demo.g.kernel(scale, grid=0, block=0, args=(demo.staged,), shared_bytes=-1)
    found = cheap(demo.g).errors
    assert len(found) == 5
    assert {each.location for each in found} == {node.location}
    assert node.location[0] == __file__


def test_a_report_is_json(demo):
    demo.g.kernel(scale, grid=0, block=2048, args=(demo.staged,))
    demo.g.memset(demo.x[::2], np.float32(1))
    assert len(json.loads(json.dumps(cheap(demo.g).to_json()))) == len(cheap(demo.g))


def test_a_check_changes_nothing(demo):
    demo.g.kernel(scale, grid=demo.n, block=32, args=(demo.x, demo.y, demo.gain, demo.n)) >> demo.g.empty()
    before = (list(demo.g.dag.nodes.data()), list(demo.g.dag.edges.data()), dict(demo.g.operands))
    first, second = cheap(demo.g), cheap(demo.g)
    assert list(first) == list(second)
    assert (list(demo.g.dag.nodes.data()), list(demo.g.dag.edges.data()), dict(demo.g.operands)) == before


@pytest.mark.parametrize("target", ["sm_80", (8, 0), limits_of("sm_80"), "8.0"])
def test_targets(demo, target):
    demo.g.kernel(scale, grid=1, block=1, args=(demo.x, demo.y, demo.gain, demo.n), shared_bytes=200_000)
    report = cheap(demo.g, target=target)
    assert report.target == "sm_80"
    assert judged(report) == [("GD214", "scale", "shared_bytes")]
    assert judged(cheap(demo.g)) == []


def test_an_unknown_target_is_refused(demo):
    with pytest.raises(gd.DeclarationError, match="sm_10"):
        cheap(demo.g, target="sm_10")


def test_a_graph_without_kernels_needs_no_numba():
    program = """
import sys, numpy as np, graphdsl as gd
g = gd.Graph()
g.memcpy(g.device_array("x", 4, np.float32), g.host_array("h", 4, np.float32))
assert g.check().ok
assert str(g.check())
assert not [name for name in sys.modules if name.split(".")[0] in ("numba", "cuda")]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_exception_in_a_rule_is_not_swallowed(demo):
    demo.g.empty()
    with mock.patch.object(Context, "groups", property(lambda self: 1 / 0)), pytest.raises(ZeroDivisionError):
        cheap(demo.g)


# Work is shared


def many(demo, count):
    for i in range(count):
        buffer = demo.g.device_array(f"x{i}", 64, np.float32)
        demo.g.kernel(increase, grid=gd.cdiv(demo.n, 64), block=64, args=(buffer, demo.n))
    return demo.g


def test_types_and_images_are_found_once_for_nodes_that_are_alike(demo):
    g = many(demo, 200)
    with (
        mock.patch.object(signature, "argument_types", wraps=signature.argument_types) as types,
        mock.patch.object(compiler, "compile_kernel", wraps=compiler.compile_kernel) as compiled,
        mock.patch.object(touched, "accesses", return_value=()),  # which asks for the types of each node
    ):
        assert check(g).ok
    assert types.call_count == 1
    assert compiled.call_count == 1


def test_equal_expressions_are_evaluated_once(demo):
    context = Context.of_graph(many(demo, 50), ON_SM_90, {})
    with mock.patch.object(Context, "_evaluate", autospec=True, side_effect=Context._evaluate) as evaluated:
        assert len(context.launches) == 1
    assert evaluated.call_count == 1


def test_each_of_many_wrong_nodes_is_named(demo):
    for i in range(50):
        demo.g.kernel(increase, grid=0, block=64, args=(demo.x, demo.n), name=f"node{i}")
    assert [found.node for found in cheap(demo.g).errors] == [f"node{i}" for i in range(50)]


# Updates


def test_nodes_are_held_to_the_rules_about_nodes(demo):
    run = demo.g.kernel(increase, grid=gd.cdiv(demo.n, 256), block=256, args=(demo.x[: demo.n], demo.n), name="run")
    copy = demo.g.memcpy(demo.x[: demo.n], demo.raw[: demo.n], name="copy")
    run >> copy >> run  # the structure is not what an update changes
    assert not check_nodes([run, copy], targets=ON_SM_90, values={"n": 1024, "gain": 1.0})
    report = check_nodes([run, copy], targets=ON_SM_90, values={"n": 0, "gain": 1.0})
    assert judged(report) == [("GD211", "run", "grid"), ("GD303", "copy", "destination")]
    report = check_nodes([run], targets=ON_SM_90, values={"n": 2000, "gain": 1.0})
    assert judged(report) == [("GD301", "run", "argument 'x'")]


def test_no_nodes_are_right():
    assert not check_nodes([], targets=ON_SM_90, values={})


def test_changed_nodes_are_held_to_their_image(demo):
    types = signature.argument_types
    run = demo.g.kernel(increase, grid=1, block=256, args=(demo.x, demo.n), name="run")
    image = compiler.compile_kernel(run.kernel, types(run.kernel, run.args))
    held = {"targets": ON_SM_90, "values": {"n": 1024, "gain": 1.0}, "images": {"run": image}}
    assert not check_nodes([run.replaced(args=(demo.y, 5))], **held)
    found = only(check_nodes([run.replaced(args=(demo.table, demo.n))], **held))
    assert (found.code, found.node, found.field) == ("GD206", "run", "argument 'x'")
    found = only(check_nodes([run.replaced(args=(demo.x, demo.gain))], **held))
    assert (found.code, found.node, found.field, found.value) == ("GD206", "run", "argument 'n'", "gain")
    both = check_nodes([run.replaced(args=(demo.table, 1.5))], **held)
    assert judged(both) == [("GD206", "run", "argument 'x'"), ("GD206", "run", "argument 'n'")]
    found = only(check_nodes([run.replaced(args=(demo.x,))], **held))
    assert (found.code, found.value) == ("GD201", "missing n")


def test_nothing_is_compiled_for_an_update(demo):
    run = demo.g.kernel(increase, grid=1, block=256, args=(demo.x, demo.n))
    with mock.patch.object(compiler, "compile_kernel", side_effect=AssertionError):
        assert not check_nodes([run], targets=ON_SM_90, values={"n": 1, "gain": 1.0}, images={})


def test_a_launch_is_held_to_the_rules_about_launches():
    place = ("demo.py", 3)
    assert check_launch("run", (1, 1, 1), (256, 1, 1), 0, SM_90) == []
    (found,) = check_launch("run", (0, 1, 1), (256, 1, 1), 0, SM_90, location=place)
    assert (found.code, found.node, found.field, found.value) == ("GD211", "run", "grid", (0, 1, 1))
    assert found.location == place
    found = check_launch("run", (1, 1, 1), (2048, 1, 1), 10**6, SM_90)
    assert [(each.code, each.field) for each in found] == [("GD212", "block"), ("GD214", "shared_bytes")]


def test_a_launch_is_held_to_its_image(demo):
    run = demo.g.kernel(increase, grid=1, block=256, args=(demo.x, demo.n))
    image = compiler.compile_kernel(run.kernel, signature.argument_types(run.kernel, run.args))
    assert image.max_threads == 1024
    narrow = dataclasses.replace(image, max_threads=64, shared_bytes=1024, registers=10)
    assert check_launch("run", (1, 1, 1), (64, 1, 1), SM_90.shared_optin_bytes - 1024, SM_90, narrow) == []
    found = check_launch("run", (1, 1, 1), (65, 1, 1), SM_90.shared_optin_bytes - 1023, SM_90, narrow)
    assert [(each.code, each.field) for each in found] == [("GD213", "block"), ("GD214", "shared_bytes")]


def test_a_failure_is_compiled_once_in_a_check_and_not_remembered(demo, monkeypatch):
    from graphdsl.compile import numba as compiling

    built = []
    build = compiling._build
    monkeypatch.setattr(compiling, "_build", lambda kernel, *rest: built.append(kernel) or build(kernel, *rest))

    def late(x, n):
        x[0] = not_yet + n  # noqa: F821

    for literal in (1, 1000, 100_000):  # told apart by their size, and of one type
        demo.g.kernel(late, grid=1, block=1, args=(demo.x, literal))
    (found,) = in_any_order(demo.g).check().errors
    assert (found.code, found.nodes) == ("GD205", ("late", "late_1", "late_2"))
    assert len(built) == 1
    monkeypatch.setitem(globals(), "not_yet", 2)
    assert demo.g.check().ok
