"""What changes the fingerprint of a kernel, what does not, and what has none."""

from __future__ import annotations

import collections
import enum
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.cudadrv.linkable_code import CUSource, PTXSource

from graphdsl.compile import fingerprint as fingerprinting
from graphdsl.compile.fingerprint import fingerprint
from graphdsl.declare.kernel import Kernel, as_kernel

VECTOR = types.float32[::1]

MODULE = """
import math
import enum
import collections
import numpy as np
from numba import cuda
from numba.cuda import types

FACTOR = 2.0
TABLE = np.arange(4.0)
UNUSED = 1

class Mode(enum.IntEnum):
    FAST = 1

Pair = collections.namedtuple("Pair", "first second")

@cuda.jit(device=True)
def inner(a):
    return a + 1

@cuda.jit(device=True)
def outer(a):
    return inner(a) * 2

def plain(a):
    return a

def kernel(x, n=0):
    # a comment
    i = cuda.grid(1)
    if i < n:
        x[i] = outer(x[i]) * FACTOR + TABLE[1] + math.sin(Mode.FAST)
"""


def of(
    source: str,
    name: str = "kernel",
    kinds: tuple[Any, ...] = (VECTOR, types.int32),
    target: tuple[int, int] = (9, 0),
    **options: Any,
) -> str | None:
    module = ModuleType("made_up")
    exec(compile(textwrap.dedent(source), "made_up.py", "exec"), vars(module))
    found = vars(module)[name]
    kernel = as_kernel(found) if hasattr(found, "py_func") else Kernel(found, (), options)
    return fingerprint(kernel, kinds, target)


def changed(before: str, after: str) -> bool:
    assert before in MODULE
    return of(MODULE.replace(before, after)) != of(MODULE)


def test_the_same_code_has_the_same_fingerprint() -> None:
    first = of(MODULE)
    assert first is not None
    assert len(first) == 64
    assert of(MODULE) == first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# a comment", "# another comment\n    # in two lines"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("def plain(a):\n    return a", "def plain(a):\n    return -a"),
        ("FACTOR = 2.0", "FACTOR = 1.0 + 1.0"),
    ],
)
def test_what_the_code_does_not_follow_from_changes_nothing(before: str, after: str) -> None:
    assert not changed(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x[i] = outer", "x[i] = -outer"),
        ("cuda.grid(1)", "cuda.grid(2)"),
        ("n=0", "n=1"),
        ("FACTOR = 2.0", "FACTOR = 2"),
        ("FACTOR = 2.0", "FACTOR = 3.0"),
        ("FACTOR = 2.0", "FACTOR = np.float32(2)"),
        ("FACTOR = 2.0", "FACTOR = -0.0"),
        ("np.arange(4.0)", "np.arange(5.0)"),
        ("np.arange(4.0)", "np.arange(4.0, dtype=np.float32)"),
        ("np.arange(4.0)", "np.arange(4.0)[::-1]"),
        ("np.arange(4.0)", "np.array([0.0, 1.0, 2.0, 4.0])"),
        ("FAST = 1", "FAST = 2"),
        ("return inner(a) * 2", "return inner(a) * 3"),
        ("return a + 1", "return a + 2"),
        ("@cuda.jit(device=True)\ndef inner", "@cuda.jit(device=True, fastmath=True)\ndef inner"),
        ("math.sin", "math.cos"),
        ("def kernel", "def  kernel(x, n=0): pass\ndef kernel_2"),
    ],
)
def test_what_the_code_follows_from_changes_it(before: str, after: str) -> None:
    assert changed(before, after)


def test_types_target_and_options_change_it() -> None:
    found = [
        of(MODULE),
        of(MODULE, kinds=(types.float32[:], types.int32)),
        of(MODULE, kinds=(types.Array(types.float32, 1, "C", readonly=True), types.int32)),
        of(MODULE, kinds=(types.float64[::1], types.int32)),
        of(MODULE, target=(8, 0)),
        of(MODULE, fastmath=True),
        of(MODULE, lineinfo=True),
        of(MODULE, debug=True),
        of(MODULE, opt=False),
        of(MODULE, max_registers=32),
        of(MODULE, launch_bounds=128),
        of(MODULE, launch_bounds=(128, 2)),
    ]
    assert None not in found
    assert len(set(found)) == len(found)


def test_line_numbers_count_only_where_they_are_kept() -> None:
    moved = "\n\n" + MODULE
    assert of(moved) == of(MODULE)
    assert of(moved, lineinfo=True) != of(MODULE, lineinfo=True)


def test_versions_and_numba_variables_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = of(MODULE)
    monkeypatch.setenv("NUMBA_OPT", "0")
    second = of(MODULE)
    monkeypatch.setattr(fingerprinting, "versions", lambda: ("another",))
    third = of(MODULE)
    monkeypatch.setattr(fingerprinting, "FORMAT", -1)
    assert len({first, second, third, of(MODULE)}) == 4


def closure(value: Any) -> Callable[..., None]:
    def kernel(x, n):  # type: ignore[no-untyped-def]
        x[0] = value

    return kernel


def of_closure(value: Any) -> str | None:
    return fingerprint(Kernel(closure(value)), (VECTOR, types.int32), (9, 0))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


Pair = collections.namedtuple("Pair", "first second")
Other = collections.namedtuple("Other", "first third")

DISTINCT = [
    None, True, 1, 1.0, 1j, "1", b"1", (1,), [1], (1, 2), ((1,), 2), (1, (2,)), {1}, frozenset({1}), {1: 2}, {1: 3},
    range(3), slice(3), ..., np.int8(1), np.int16(1), np.float32(1), np.zeros(2), np.zeros((1, 2)), np.zeros((2, 1)),
    np.zeros(2, np.int64), np.dtype(np.int8), np.dtype([("a", np.int8), ("b", np.int32)]),
    np.dtype([("a", np.int8), ("b", np.int32)], align=True), np.datetime64(1, "s"), np.datetime64(1, "ms"),
    Colour.RED, Colour.BLUE, Colour, Pair, Other, Pair(1, 2), Other(1, 2), types.float32,
    types.float64, types.float32[:],
    np.float32, np.sin, len, int, cuda.grid, cuda.threadIdx, np, cuda, sys, float("nan"), float("inf"),
]  # fmt: skip


def test_each_kind_of_value_is_told_from_all_others() -> None:
    found = [of_closure(value) for value in DISTINCT]
    assert None not in found
    assert len(set(found)) == len(DISTINCT)
    assert found == [of_closure(value) for value in DISTINCT]


def registered(a):  # type: ignore[no-untyped-def]
    return a


class Custom:
    pass


class DeviceMemory:
    __cuda_array_interface__ = None


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "value",
    [
        registered,
        Custom,
        Custom(),
        DeviceMemory(),
        np.array([None]),
        (1, Custom()),
        {1: registered},
        cuda.declare_device("elsewhere", "int32(int32)"),
        ENDLESS,
    ],
)
def test_what_cannot_be_told_by_content_has_no_fingerprint(value: Any) -> None:
    assert of_closure(value) is None


def test_a_device_function_that_reads_such_a_thing_has_none_either() -> None:
    @cuda.jit(device=True)
    def reads(a):  # type: ignore[no-untyped-def]
        return registered(a)

    assert of_closure(reads) is None


def test_functions_may_call_each_other() -> None:
    source = """
        from numba import cuda

        @cuda.jit(device=True)
        def even(n):
            return True if n == 0 else odd(n - 1)

        @cuda.jit(device=True)
        def odd(n):
            return False if n == 0 else even(n - {step})

        def kernel(x, n):
            x[0] = even(n)
    """
    first = of(source.format(step=1))
    assert first is not None
    assert first == of(source.format(step=1))
    assert first != of(source.format(step=2))


def test_functions_inside_a_kernel_are_read_too() -> None:
    source = """
        LIMIT = {limit}

        def kernel(x, n):
            def bounded(a):
                return min(a, LIMIT)

            x[0] = bounded(n)
    """
    assert of(source.format(limit=1)) != of(source.format(limit=2))


@pytest.fixture
def module_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the user's that a kernel asks for constants and functions."""
    module = ModuleType("users_own")
    vars(module).update(STEP=1, OTHER=1, inside=ModuleType("inside"))
    module.inside.DEPTH = 1
    module.itself = module  # type: ignore[attr-defined]
    return module


def test_what_is_asked_of_a_module_without_a_version_counts(module_on_path: ModuleType) -> None:
    def kernel(x, n):  # type: ignore[no-untyped-def]
        x[0] = module_on_path.STEP + module_on_path.inside.DEPTH + module_on_path.itself.STEP

    def found() -> str | None:
        return fingerprint(Kernel(kernel), (VECTOR, types.int32), (9, 0))

    first = found()
    assert first is not None
    module_on_path.OTHER = 2  # type: ignore[attr-defined]
    assert found() == first
    module_on_path.inside.DEPTH = 2
    second = found()
    module_on_path.STEP = 2  # type: ignore[attr-defined]
    assert len({first, second, found()}) == 3


def test_two_functions_may_ask_a_module_for_different_things(module_on_path: ModuleType) -> None:
    @cuda.jit(device=True)
    def first(a):  # type: ignore[no-untyped-def]
        return a + module_on_path.STEP

    @cuda.jit(device=True)
    def second(a):  # type: ignore[no-untyped-def]
        return a + module_on_path.OTHER

    before = of_closure((first, second))
    module_on_path.OTHER = 5  # type: ignore[attr-defined]
    assert of_closure((first, second)) != before


# Linked code


def test_linked_files_count_by_content(tmp_path: Path) -> None:
    path, other = tmp_path / "a.ptx", tmp_path / "b.ptx"
    path.write_text("one")
    other.write_text("one")
    first = of(MODULE, link=[str(path)])
    assert first not in (None, of(MODULE))
    assert of(MODULE, link=[path]) == of(MODULE, link=[str(other)]) == of(MODULE, link=[PTXSource("one")]) == first
    assert of(MODULE, link=[CUSource("one")]) != first
    path.write_text("two")
    assert of(MODULE, link=[str(path)]) != first


@pytest.mark.parametrize("item", [CUSource('#include "more.cuh"'), "missing.ptx", "nothing.known", 3])
def test_linked_code_that_cannot_be_told_by_content(item: Any) -> None:
    assert of(MODULE, link=[item]) is None
