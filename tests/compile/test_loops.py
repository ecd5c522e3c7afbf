"""The compiled loops call C functions; here they call Python through ctypes, which tells what arrived."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from graphdsl.compile import loops
from tests.bounded import at_once, script

CONTEXT, GRAPH = 0xC0, 0x60


class Functions:
    """C functions that note their calls; one of them can be told to refuse."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.refused: dict[int, int] = {}
        self._kept: list[object] = []
        self.room = np.zeros(1, np.uint64)

    def function(self, name: str, count: int, *, adds: bool = False) -> int:
        def call(*words: int) -> int:
            self.calls.append((name, words[1:] if adds else words))
            if adds:
                ctypes.c_uint64.from_address(words[0]).value = 100 + len(self.calls)
            return next((self.refused[word] for word in words if word in self.refused), 0)

        made = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * count)(call)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def current(self) -> np.ndarray:
        addresses = [self.function("push", 1), self.function("pop", 1), self.room.ctypes.data]
        return np.array(addresses, np.uint64)


@pytest.fixture
def functions() -> Functions:
    return Functions()


OFFSET = 40
STRUCT = np.zeros(6, np.uint64)
STRUCT[OFFSET // 8] = 0xC1
WITH_STRUCT = STRUCT.ctypes.data
FORMS = np.array([loops.WITH_PARAMS, OFFSET, loops.WITHOUT_PARAMS], np.uint8)
KINDS = np.array([0, 1, 2, 0], np.uint8)
PARAMS = np.array([11, WITH_STRUCT, 13, 14], np.uint64)


def adds(functions: Functions) -> np.ndarray:
    made = [functions.function(name, count, adds=True) for name, count in (("plain", 5), ("context", 6), ("none", 4))]
    return np.array(made, np.uint64)


def test_nodes_are_added_with_what_their_kind_takes(functions):
    handles = np.zeros(4, np.uint64)
    outcome = loops.add_nodes(functions.current(), adds(functions), FORMS, KINDS, GRAPH, CONTEXT, PARAMS, handles)
    assert outcome == loops.NO_FAILURE
    assert functions.calls == [
        ("push", (CONTEXT,)),
        ("plain", (GRAPH, 0, 0, 11)),
        ("context", (GRAPH, 0, 0, WITH_STRUCT, 0xC1)),
        ("none", (GRAPH, 0, 0)),
        ("plain", (GRAPH, 0, 0, 14)),
        ("pop", (functions.room.ctypes.data,)),
    ]
    assert handles.tolist() == [102, 103, 104, 105]


def test_a_refusal_ends_the_loop_and_the_context_is_put_back(functions):
    functions.refused[WITH_STRUCT] = 701
    handles = np.zeros(4, np.uint64)
    outcome = loops.add_nodes(functions.current(), adds(functions), FORMS, KINDS, GRAPH, CONTEXT, PARAMS, handles)
    assert loops.failure(outcome) == (1, 701)
    assert [name for name, _ in functions.calls] == ["push", "plain", "context", "pop"]


def test_params_are_set_with_what_their_kind_takes(functions):
    change = np.array([functions.function("plain", 3), functions.function("context", 4)], np.uint64)
    kinds, nodes = np.array([1, 0], np.uint8), np.array([21, 22], np.uint64)
    params = np.array([WITH_STRUCT, 12], np.uint64)
    outcome = loops.direct(loops.set_params)(functions.current(), change, FORMS, kinds, GRAPH, CONTEXT, nodes, params)
    assert outcome == loops.NO_FAILURE
    assert functions.calls[1:-1] == [("context", (GRAPH, 21, WITH_STRUCT, 0xC1)), ("plain", (GRAPH, 22, 12))]
    functions.calls.clear()
    functions.refused[22] = 1
    outcome = loops.set_params(functions.current(), change, FORMS, kinds, GRAPH, CONTEXT, nodes, params)
    assert loops.failure(outcome) == (1, 1)
    assert [name for name, _ in functions.calls] == ["push", "context", "plain", "pop"]


def test_edges_are_added_in_one_call(functions):
    add = functions.function("edges", 5)
    sources, targets = np.array([1, 2], np.uint64), np.array([3, 4], np.uint64)
    assert loops.add_dependencies(functions.current(), CONTEXT, add, GRAPH, sources, targets, 77) == 0
    assert functions.calls[1] == ("edges", (GRAPH, sources.ctypes.data, targets.ctypes.data, 77, 2))
    assert functions.calls[-1][0] == "pop"


def test_a_context_that_cannot_be_made_current_ends_all(functions):
    functions.refused[CONTEXT] = 201
    handles = np.zeros(4, np.uint64)
    outcome = loops.add_nodes(functions.current(), adds(functions), FORMS, KINDS, GRAPH, CONTEXT, PARAMS, handles)
    assert loops.failure(outcome) == (0, 201)
    assert [name for name, _ in functions.calls] == ["push"]


def test_two_words_go_to_the_function_and_its_code_comes_back(functions):
    function = functions.function("launch", 2)
    functions.refused[7] = 719
    for call in (loops.call_two, loops.direct(loops.call_two)):
        assert call(function, 5, 6) == 0
        assert call(function, 5, 7) == 719
    assert functions.calls[0] == ("launch", (5, 6))


def test_a_child_is_changed_by_the_graph_in_its_params(functions):
    struct = np.zeros(32, np.uint64)
    struct[loops.GRAPH_OFFSET // 8] = 0xABC
    forms, kinds = np.array([loops.OF_GRAPH], np.uint8), np.zeros(1, np.uint8)
    nodes, params = np.array([21], np.uint64), np.array([struct.ctypes.data], np.uint64)
    change = np.array([functions.function("graph", 3)], np.uint64)
    outcome = loops.set_params(functions.current(), change, forms, kinds, GRAPH, CONTEXT, nodes, params)
    assert outcome == loops.NO_FAILURE
    assert ("graph", (GRAPH, 21, 0xABC)) in functions.calls


def meet() -> None:
    """Two threads meet in a C function, called by each of the loops."""
    library = ctypes.CDLL(None)
    wait, nothing = (ctypes.cast(call, ctypes.c_void_p).value for call in (library.pthread_barrier_wait, library.abs))
    barrier, one = np.zeros(32, np.uint64), np.zeros(1, np.uint64)
    at = barrier.ctypes.data
    current = np.array([nothing, nothing, one.ctypes.data], np.uint64)  # abs(0) is no failure
    functions, kinds = np.array([wait], np.uint64), KINDS[:1]
    for call in (
        lambda: loops.set_params(current, functions, FORMS, kinds, at, 0, one, one),
        lambda: loops.add_nodes(current, functions, FORMS, kinds, GRAPH, 0, one, barrier),
        lambda: loops.add_dependencies(current, 0, wait, at, one, one, 0),
        lambda: loops.direct(loops.call_two)(wait, at, 0),
    ):
        assert library.pthread_barrier_init(ctypes.c_void_p(at), None, 2) == 0
        at_once(call, call)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "pthread_barrier_wait"), reason="no barriers in this C library")
def test_the_gil_is_released_around_calls():
    """With the GIL held, the second thread would never come, and nothing in the process could tell."""
    script("from tests.compile.test_loops import meet; meet()")
