"""Several threads may declare into one graph: nothing is lost, and blocks are of the thread that is inside of them."""

from __future__ import annotations

import copy
import itertools
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.compile.signature import argument_types
from graphdsl.declare.kernel import as_kernel
from graphdsl.declare.sources import cuda_source
from tests.bounded import at_once
from tests.conformance import kernels

MANY = 8


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Threads switch as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work) -> list:
    """What ``work(number)`` gives in each of many threads."""
    return at_once(*(lambda number=number: work(number) for number in range(MANY)))


def test_names_that_are_made_are_given_once():
    g = gd.Graph("many")
    x = g.device_array("x", 4, np.float32)
    found = in_threads(lambda number: [g.memset(x, 0) for _ in range(100)])
    nodes = list(itertools.chain(*found))
    names = {"set_x", *(f"set_x_{i}" for i in range(1, MANY * 100))}
    assert {node.name for node in nodes} == names
    assert set(g.dag) == names
    assert {id(node) for node in g.nodes} == {id(node) for node in nodes}


@pytest.mark.parametrize(
    ("declare", "found"),
    [
        (lambda g: g.empty(name="n"), lambda g: g.node("n")),
        (lambda g: g.param("n", np.int32), lambda g: g.operands["n"]),
        (lambda g: g.device_array("n", 4, np.int32), lambda g: g.operands["n"]),
        (lambda g: g.event("n"), lambda g: g.operands["n"]),
    ],
)
def test_a_name_that_is_given_is_one_threads(declare, found):
    for _ in range(20):
        g = gd.Graph("names")
        refused: list[str] = []

        def attempt(number: int, g=g, refused=refused):
            try:
                return declare(g)
            except gd.DeclarationError as problem:
                refused.append(str(problem))

        (made,) = [made for made in in_threads(attempt) if made is not None]
        assert found(g) is made
        assert len(refused) == MANY - 1
        assert all("already has" in text for text in refused)


def test_blocks_are_of_one_thread():
    g = gd.Graph("blocks")

    def declare(number: int) -> None:
        with g.scope(f"part{number}"), g.sequence(), g.tagged(f"tag{number}"):
            for i in range(20):
                g.empty(name=f"n{i}")

    in_threads(declare)
    assert len(g) == MANY * 20
    for number in range(MANY):
        for i in range(20):
            node = g.node(f"part{number}/n{i}")
            assert node.tags == {f"tag{number}"}
            assert list(g.dag.predecessors(node.name)) == ([f"part{number}/n{i - 1}"] if i else [])


def test_a_block_does_not_reach_into_other_threads():
    g = gd.Graph("blocks")
    with g.scope("mine"), g.sequence():
        first = g.empty(name="first")
        (other,) = at_once(lambda: g.empty(name="other"))
        last = g.empty(name="last")
    assert (first.name, other.name, last.name) == ("mine/first", "other", "mine/last")
    assert list(g.dag.edges) == [("mine/first", "mine/last")]


def test_a_failed_declaration_leaves_its_name_to_others():
    g = gd.Graph("failed")
    x = g.device_array("x", 4, np.float32)
    for name in (None, "clear"):
        with pytest.raises(gd.DeclarationError):
            at_once(lambda name=name: g.memset(x, 0, name=name, after="nothing"))
    assert g.memset(x, 0, name="clear").name == "clear"
    assert len({g.memset(x, 0).name for _ in range(3)}) == 3


def test_a_copy_is_inside_of_no_block():
    g = gd.Graph("copied")
    with g.scope("a"), g.tagged("t"), g.on(1):
        other = copy.deepcopy(g)
    node = other.empty(name="n")
    assert (node.name, node.tags, node.device) == ("n", frozenset(), None)


def test_calls_do_not_tell_how_many_threads_declared():
    def declare(g: gd.Graph, x, number: int) -> None:
        for i in range(5):
            g.kernel(kernels.add_to, grid=1, block=4, args=(x, 1.0, 4), name=f"k{number}_{i}")

    def calls(threads: bool) -> tuple:
        g = gd.Graph("calls")
        x = g.device_array("x", 4, np.float32)
        if threads:
            in_threads(lambda number: declare(g, x, number))
        else:
            for number in range(MANY):
                declare(g, x, number)
        g.independent(g.nodes, g.nodes, why="this is about calls")
        return g.trace()

    assert calls(True) == calls(False)


def test_equal_expressions_are_one_object():
    for _ in range(30):
        n = gd.Graph("g").param("n", np.int32)
        found = in_threads(lambda number, n=n: [gd.cdiv(n * i + 1, 256) for i in range(20)])
        assert all(one is other for others in found for one, other in zip(found[0], others, strict=True))


def test_a_function_is_one_kernel_with_one_set_of_types():
    for _ in range(30):

        def kernel(x):
            x[0] = 1

        x = gd.Graph("g").device_array("x", 4, np.float32)
        found = in_threads(lambda number, kernel=kernel: as_kernel(kernel))
        assert len(set(map(id, found))) == 1
        types = in_threads(lambda number, kernel=kernel, x=x: argument_types(as_kernel(kernel), (x,)))
        assert types == [types[0]] * MANY


def test_equal_sources_are_one_kernel():
    for i in range(10):
        text = f'extern "C" __global__ void fill(float* x) {{ x[0] = {i}; }}'
        found = in_threads(lambda number, text=text: cuda_source(text, "fill"))
        assert len(set(map(id, found))) == 1


def test_one_kernel_is_compiled_once(monkeypatch):
    from graphdsl.compile import numba as compiler

    built: list[int] = []
    build = compiler._build

    def counted(*args):
        built.append(threading.get_ident())
        return build(*args)

    monkeypatch.setattr(compiler, "_build", counted)
    monkeypatch.setattr(compiler.cache, "load", lambda *args: None)
    monkeypatch.setattr(compiler.cache, "store", lambda *args: None)

    def kernel(x):
        x[0] = 3

    def instantiate(number: int) -> float:
        g = gd.Graph("g")
        g.kernel(kernel, grid=1, block=1, args=(g.host_array("x", 1, np.float32),))
        with g.instantiate(gd.emulator()) as exe:
            exe["x"][:] = 0
            exe.launch()
            exe.synchronize()
            return float(exe["x"][0])

    assert in_threads(instantiate) == [3.0] * MANY
    assert len(built) == 1
