"""Compiling kernels on a machine that may have no GPU: images, options, external code, and what is said of failures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from numba import cuda
from numba.cuda import dispatcher, types
from numba.cuda.cudadrv.linkable_code import CUSource, PTXSource

import graphdsl.compile.numba as compiling
from graphdsl.compile import cache
from graphdsl.compile.diagnosis import essence, refused
from graphdsl.compile.elf import Resources
from graphdsl.compile.image import KernelImage
from graphdsl.compile.numba import compile_kernel
from graphdsl.declare.kernel import Kernel, as_kernel
from graphdsl.errors import CompileError

VECTOR = types.float32[::1]


def compiled(
    function: Callable[..., Any], *kinds: Any, target: tuple[int, int] = (9, 0), **options: Any
) -> KernelImage:
    kernel = Kernel(function, (), options) if options else as_kernel(function)
    return compile_kernel(kernel, kinds, target, node="node", location=("graph.py", 3))


def scale(x, y, gain, n):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < n:
        y[i] = gain * x[i]


def divide(x, y):  # type: ignore[no-untyped-def]
    y[0] = x[0] / y[0]


def mix(x, y):  # type: ignore[no-untyped-def]
    """Keeps 60 numbers alive at once."""
    kept = cuda.local.array(60, types.float32)
    for i in range(60):
        kept[i] = x[i]
    cuda.syncthreads()
    for i in range(60):
        y[59 - i] = kept[i] * kept[(i * 7) % 60]


def share(x):  # type: ignore[no-untyped-def]
    kept = cuda.shared.array(100, types.float32)
    i = cuda.threadIdx.x
    kept[i] = x[i]
    cuda.syncthreads()
    x[i] = kept[i ^ 1]


def test_the_image_of_a_kernel() -> None:
    image = compiled(scale, VECTOR, VECTOR, types.float32, types.int32)
    assert image.name == "scale"
    assert image.function is scale
    assert image.target == (9, 0)
    assert image.cubin.startswith(b"\x7fELF")
    assert f".entry {image.entry}(" in image.ptx
    assert image.entry.encode() in image.cubin
    assert image.layout.names == ("x", "y", "gain", "n")
    assert image.layout.types == (VECTOR, VECTOR, types.float32, types.int32)
    assert image.shared_bytes == 0
    assert 0 < image.registers <= 32
    assert image.max_threads == 1024


def test_shared_memory_is_counted() -> None:
    assert [compiled(share, VECTOR, target=target).shared_bytes for target in ((8, 0), (9, 0))] == [400, 400]


@pytest.mark.parametrize("target", [(7, 5), (8, 0), (10, 0), (12, 0)])
def test_each_target_has_an_image_of_its_own(target: tuple[int, int]) -> None:
    image = compiled(divide, VECTOR, VECTOR, target=target)
    assert image.target == target
    assert f".target sm_{target[0]}{target[1]}" in image.ptx


@pytest.mark.parametrize(
    ("target", "why"), [((7, 0), "compute capability 7.0 is not supported"), ((9, 9), "for sm_99")]
)
def test_a_target_that_the_tools_do_not_know_is_refused(target: tuple[int, int], why: str) -> None:
    with pytest.raises(CompileError, match=why):
        compiled(divide, VECTOR, VECTOR, target=target)


# What Numba asks the device for


@cuda.jit(device=True)
def square(a):  # type: ignore[no-untyped-def]
    return a * a


@cuda.jit(device=True)
def cube(a):  # type: ignore[no-untyped-def]
    return a * square(a)


@numba.njit
def half(a):  # type: ignore[no-untyped-def]
    return a / 2


def test_device_functions_compile_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_device() -> Any:
        raise AssertionError("Numba asked for a device")

    def calls(x):  # type: ignore[no-untyped-def]
        x[0] = cube(x[1]) + half(x[2]) + min(x[3], x.sum())

    monkeypatch.setattr(dispatcher, "get_current_device", no_device)
    assert compiled(calls, VECTOR).registers
    assert dispatcher.get_current_device is no_device


def test_other_threads_are_asked_for_their_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: "the real one")
    found = []
    with compiling._compiling_for((8, 6)):
        assert dispatcher.get_current_device().compute_capability == (8, 6)
        other = threading.Thread(target=lambda: found.append(dispatcher.get_current_device()))
        other.start()
        other.join()
    assert found == ["the real one"]


def test_numba_functions_with_code_of_their_own_are_linked() -> None:
    def reshapes(x):  # type: ignore[no-untyped-def]
        x[0] = x.reshape((2, 5))[1, 1]

    assert "numba_attempt_nocopy_reshape" in compiled(reshapes, VECTOR).ptx


def test_nothing_is_printed_or_warned(capfd: pytest.CaptureFixture[str]) -> None:
    def wide(x, y):  # type: ignore[no-untyped-def]
        y[0] = x[0] @ x[0] if False else x[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(wide, VECTOR, VECTOR, debug=True, opt=True)
        with pytest.raises(CompileError):
            compiled(returns_a_number, VECTOR)
    assert capfd.readouterr() == ("", "")


def test_importing_says_nothing() -> None:
    code = "import graphdsl.compile.numba"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_numbas_simulator_in_place_of_its_compiler_is_named() -> None:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    code = "import graphdsl.compile.numba"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "CompileError: NUMBA_ENABLE_CUDASIM = 1: Numba's CUDA compiler cannot be used" in done.stderr
    assert "Unset NUMBA_ENABLE_CUDASIM" in done.stderr


# Options


def test_line_numbers_are_kept_where_asked_for() -> None:
    assert ".loc" not in compiled(divide, VECTOR, VECTOR).ptx
    image = compiled(divide, VECTOR, VECTOR, lineinfo=True)
    assert ".loc" in image.ptx
    assert b".debug_line" in image.cubin


def test_debug_information_is_kept_where_asked_for() -> None:
    def calls(x):  # type: ignore[no-untyped-def]
        x[0] = cube(x[1])

    image = compiled(calls, VECTOR, debug=True)
    assert b".debug_info" in image.cubin
    assert image.registers > compiled(calls, VECTOR).registers


def test_fast_mathematics_and_optimisation() -> None:
    assert "div.rn.f32" in compiled(divide, VECTOR, VECTOR).ptx
    assert "div.approx" in compiled(divide, VECTOR, VECTOR, fastmath=True).ptx
    assert len(compiled(divide, VECTOR, VECTOR, opt=False).ptx) > len(compiled(divide, VECTOR, VECTOR).ptx)


def test_registers_are_bounded() -> None:
    free, bounded = compiled(mix, VECTOR, VECTOR), compiled(mix, VECTOR, VECTOR, max_registers=24)
    assert bounded.registers <= 24 < free.registers


@pytest.mark.parametrize(("bounds", "threads"), [(200, 200), ((256, 2), 256)])
def test_launch_bounds(bounds: Any, threads: int) -> None:
    assert compiled(divide, VECTOR, VECTOR, launch_bounds=bounds).max_threads == threads


def test_options_of_the_decorator_are_used() -> None:
    @cuda.jit(fastmath=True, launch_bounds=128)
    def ratio(x, y):  # type: ignore[no-untyped-def]
        y[0] = x[0] / y[0]

    image = compile_kernel(as_kernel(ratio), (VECTOR, VECTOR))
    assert "div.approx" in image.ptx
    assert image.max_threads == 128


# External code

TWICE_PTX = """
.version 8.0
.target sm_70
.address_size 64
.visible .func (.param .b32 r) twice(.param .b64 out, .param .b32 a) {
    .reg .b64 %rd; .reg .f32 %f;
    ld.param.b64 %rd, [out]; ld.param.f32 %f, [a];
    add.f32 %f, %f, %f;
    st.f32 [%rd], %f;
    st.param.b32 [r], 0;
    ret;
}
"""
TWICE_CU = 'extern "C" __device__ int twice(float* out, float a) { *out = 2 * a; return 0; }'
THRICE_CU = 'extern "C" __device__ int thrice(float* out, float a) { *out = 3 * a; return 0; }'


def test_code_that_the_decorator_links(tmp_path: Path) -> None:
    path = tmp_path / "twice.ptx"
    path.write_text(TWICE_PTX)
    twice = cuda.declare_device("twice", types.float32(types.float32))

    def calls(x):  # type: ignore[no-untyped-def]
        x[0] = twice(x[1])

    for link in ([str(path)], [path], [PTXSource(TWICE_PTX)], [CUSource(TWICE_CU, name="twice.cu")]):
        image = compiled(calls, VECTOR, link=link)
        assert ".extern .func" in image.ptx
        assert image.registers
    with pytest.raises(CompileError, match="Undefined reference to 'twice'"):
        compiled(calls, VECTOR)


def test_code_that_device_functions_link(tmp_path: Path) -> None:
    path = tmp_path / "thrice.cu"
    path.write_text(THRICE_CU)
    thrice = cuda.declare_device("thrice", types.float32(types.float32), link=str(path))

    @cuda.jit(device=True)
    def through(a):  # type: ignore[no-untyped-def]
        return thrice(a)

    def calls(x):  # type: ignore[no-untyped-def]
        x[0] = through(x[1])

    assert compiled(calls, VECTOR).registers


def test_the_device_runtime_is_linked_where_it_is_needed() -> None:
    last_error = cuda.declare_device("cudaGetLastError", types.int32(), abi="c")
    set_condition = cuda.declare_device("cudaGraphSetConditional", types.void(types.uint64, types.uint32), abi="c")

    def asks(x):  # type: ignore[no-untyped-def]
        x[0] = last_error()

    def sets(handle):  # type: ignore[no-untyped-def]
        set_condition(handle, 1)

    assert len(compiled(asks, VECTOR).cubin) > 100_000
    assert len(compiled(sets, types.uint64).cubin) < 20_000


@pytest.mark.parametrize("name", ["missing.ptx", "missing.txt"])
def test_files_that_cannot_be_linked_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(CompileError, match=rf"link = .*{name}") as caught:
        compiled(divide, VECTOR, VECTOR, link=[str(tmp_path / name)])
    assert caught.value.node == "node"
    assert caught.value.remedy


def test_code_with_callbacks_is_refused() -> None:
    linked = PTXSource(TWICE_PTX, setup_callback=lambda module: None)
    with pytest.raises(CompileError, match="callbacks at loading"):
        compiled(divide, VECTOR, VECTOR, link=[linked])


# Refusals


class DeviceMemory:
    """Looks like an array on a device."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "shape": (4,),
        "typestr": "<f4",
        "data": (4096, False),
        "version": 3,
    }


def test_device_arrays_in_globals_are_refused() -> None:
    table = DeviceMemory()

    def reads(x):  # type: ignore[no-untyped-def]
        x[0] = table[0]

    with pytest.raises(CompileError, match=r"reads a device array from a global.*graph\.external\(name, array\)"):
        compiled(reads, VECTOR)


def returns_a_number(x):  # type: ignore[no-untyped-def]
    return x[0]


def asks_for_an_attribute(x):  # type: ignore[no-untyped-def]
    x[0] = 1
    x[1] = x.foo


def adds_text(x):  # type: ignore[no-untyped-def]
    x[0] = "a" + 1


def plain(a):  # type: ignore[no-untyped-def]
    return a + 1


def calls_a_plain_function(x):  # type: ignore[no-untyped-def]
    x[0] = plain(x[0])


@cuda.jit(device=True)
def broken(a):  # type: ignore[no-untyped-def]
    return a.bar


def calls_a_broken_function(x):  # type: ignore[no-untyped-def]
    x[0] = broken(x)


def allocates(x):  # type: ignore[no-untyped-def]
    y = np.empty(3)
    x[0] = y[0]


def makes_a_list(x):  # type: ignore[no-untyped-def]
    kept = [1, 2]
    x[0] = kept[0]


def imports(x):  # type: ignore[no-untyped-def]
    x[0] = 1
    import math

    x[0] = math.sin(1.0)


def two_types(x, n):  # type: ignore[no-untyped-def]
    y = 1
    if n > 0:
        y = "a"
    x[0] = y


def reads_nothing(x):  # type: ignore[no-untyped-def]
    x[0] = undefined  # type: ignore[name-defined]  # noqa: F821


def opens_a_file(x):  # type: ignore[no-untyped-def]
    with open("a") as file:
        x[0] = file


def catches(x):  # type: ignore[no-untyped-def]
    try:
        x[0] = 1
    except ValueError:
        x[0] = 2


@pytest.mark.parametrize(
    ("function", "why", "line"),
    [
        (returns_a_number, "a kernel returns nothing, but returns_a_number returns float32", "def returns_a_number"),
        (asks_for_an_attribute, "Unknown attribute 'foo' of type array(float32, 1d, C)", "x[1] = x.foo"),
        (adds_text, "no implementation of add(Literal[str](a), Literal[int](1))", 'x[0] = "a" + 1'),
        (calls_a_plain_function, "Untyped global name 'plain'", "x[0] = plain(x[0])"),
        (calls_a_broken_function, "Unknown attribute 'bar'", "return a.bar"),
        (allocates, "Only accept returning of array", "y = np.empty(3)"),
        (makes_a_list, "NRT required but not enabled", "kept = [1, 2]"),
        (imports, "unsupported opcode (IMPORT_NAME)", "import math"),
        (two_types, "Cannot unify Literal[int](1) and Literal[str](a) for 'y", "def two_types"),
        (reads_nothing, "name 'undefined' is not defined", "def reads_nothing"),
        (opens_a_file, "construct is not supported", "def opens_a_file"),
        (catches, "Exception matching is limited to <class 'Exception'>", "except ValueError:"),
    ],
)
def test_what_numba_refuses_is_said_in_one_line_with_the_source(function: Any, why: str, line: str) -> None:
    kinds = (VECTOR, types.int32)[: function.__code__.co_argcount]
    with pytest.raises(CompileError) as caught:
        compiled(function, *kinds)
    error = caught.value
    assert why in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    assert (error.node, error.field, error.location) == ("node", "kernel", ("graph.py", 3))
    assert __file__ in error.value
    if function is not two_types:  # where that variable is assigned first or last differs between versions of Numba
        assert line in error.value
    assert error.remedy
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


def test_remedies_follow_what_is_wrong() -> None:
    for function, remedy in (
        (calls_a_plain_function, "@cuda.jit(device=True)"),
        (allocates, "cuda.local.array"),
        (makes_a_list, "cuda.local.array"),
    ):
        with pytest.raises(CompileError) as caught:
            compiled(function, VECTOR)
        assert remedy in caught.value.remedy


def test_functions_of_numpy_without_a_device_version_are_named() -> None:
    def root(x):  # type: ignore[no-untyped-def]
        x[0] = np.sqrt(x[0])

    with pytest.raises(CompileError, match=r"numpy\.sqrt has no device version\. Use math\.sqrt\."):
        compiled(root, VECTOR)
    for ufunc, remedy in (
        (np.arctan2, "Use math.atan2."),
        (np.arcsinh, "Use math.asinh."),
        (np.absolute, "Use math.fabs."),
        (np.hypot, "Use math.hypot."),
        (np.logaddexp, "Write it out for one element."),
    ):
        assert refused(Kernel(scale), (VECTOR,), KeyError(ufunc)).remedy == remedy


def sets(x, y):  # type: ignore[no-untyped-def]
    x[0] = y


def doubles(x, y):  # type: ignore[no-untyped-def]
    x[0] = 2.0 * y


@pytest.mark.parametrize("function", [sets, doubles])
def test_an_array_of_no_dimensions_is_no_number(function: Any) -> None:
    with pytest.raises(CompileError, match=r"array of one element: read it as y\[\(\)\]"):
        compiled(function, VECTOR, types.Array(types.float32, 0, "C"))

    def reads(x, y):  # type: ignore[no-untyped-def]
        x[0] = 2.0 * y[()]

    assert compiled(reads, VECTOR, types.Array(types.float32, 0, "C")).cubin


def test_colours_are_left_out() -> None:
    lines = ("Failed in cuda mode pipeline (step: x)", "\x1b[31mIt is so\x1b[0m", 'File "a.py", line 3:')
    coloured = "\n".join(f"\x1b[1m{line}\x1b[0m" for line in lines)
    error = refused(Kernel(scale), (VECTOR,), TypeError(coloured))
    assert error.rule == "Numba does not compile scale(x: array(float32, 1d, C)): It is so"
    assert error.value == "a.py:3"


def test_memory_that_may_not_be_written() -> None:
    with pytest.raises(CompileError, match="read-only: pass an operand that can be written"):
        compiled(divide, VECTOR, types.Array(types.float32, 1, "C", readonly=True))


def test_the_types_are_named() -> None:
    with pytest.raises(CompileError, match=r"does not compile adds_text\(x: array\(float32, 1d, C\)\)"):
        compiled(adds_text, VECTOR)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("", ""),
        ("Failed in cuda mode pipeline (step: x)\nIt is so\n\nFile \"a.py\", line 3:\n\nDuring: Pass y", "It is so"),
        ("No implementation of f found for signature:\n \n >>> f(i8)\n \nThere", "no implementation of f(i8)"),
        ("Function(<f at 0x7f3a>) raised a specific error:\n  Bad: thing\nraised from z", "Bad: thing"),
        ("Cannot use <object at 0x7f3a>", "Cannot use <object>"),
    ],
)  # fmt: skip
def test_the_essence_of_a_message(message: str, said: str) -> None:
    assert essence(message) == said


def test_a_convention_that_changed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(x):  # type: ignore[no-untyped-def]
        x[0] = 1

    monkeypatch.setattr(compiling, "read_resources", lambda *_: Resources(8, 0, None, ((0, 8),)))
    with pytest.raises(CompileError, match="install a version that graphdsl was tested with"):
        compiled(other, VECTOR)


def test_machine_code_of_another_format_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(x):  # type: ignore[no-untyped-def]
        x[0] = 1

    monkeypatch.setattr(compiling, "link", lambda *_, **__: b"something else")
    with pytest.raises(CompileError, match="the machine code cannot be read: not a cubin"):
        compiled(other, VECTOR)


# Once for all


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    built: list[str] = []
    build = compiling._build

    def counted(kernel: Kernel, *args: Any) -> KernelImage:
        built.append(kernel.name)
        return build(kernel, *args)

    monkeypatch.setattr(compiling, "_build", counted)
    return built


def test_a_kernel_is_compiled_once_for_its_types_and_target(monkeypatch: pytest.MonkeyPatch) -> None:
    built = count_builds(monkeypatch)

    def fresh(x):  # type: ignore[no-untyped-def]
        x[0] = 1

    kernel = as_kernel(fresh)
    first = compile_kernel(kernel, (VECTOR,))
    assert compile_kernel(kernel, (VECTOR,)) is first
    assert compile_kernel(kernel, (types.float64[:],)) is not first
    assert compile_kernel(kernel, (VECTOR,), (8, 0)) is not first
    assert built == ["fresh"] * 3


def test_a_failure_is_said_of_each_node() -> None:
    def wrong(x):  # type: ignore[no-untyped-def]
        x[0] = x.wrong

    for node in ("a", "b"):
        with pytest.raises(CompileError, match=f"node '{node}'.*'wrong'"):
            compile_kernel(as_kernel(wrong), (VECTOR,), node=node)


def test_threads_that_ask_together_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = count_builds(monkeypatch)

    def asked(x):  # type: ignore[no-untyped-def]
        x[0] = 7

    found: list[KernelImage] = []
    threads = [
        threading.Thread(target=lambda: found.append(compile_kernel(as_kernel(asked), (VECTOR,)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == ["asked"]
    assert len(found) == 4
    assert len({id(image) for image in found}) == 1


# What a kernel reads may change


MODULE = """
from numba import cuda, njit
import numpy as np
import settings

FACTOR = 2.5
TABLE = np.arange(4, dtype=np.float32)
NESTED = (1.25, (3.0,))

@cuda.jit(device=True)
def inner(a):
    return a * FACTOR

@cuda.jit(device=True)
def outer(a):
    return inner(a) + 1

@cuda.jit("float32(float32)", device=True)
def declared(a):
    return a * FACTOR

@njit
def on_a_cpu_too(a):
    return a * FACTOR

def reads_a_global(x):
    x[0] = FACTOR

def reads_a_table(x):
    x[0] = TABLE[1]

def reads_a_tuple(x):
    x[0] = NESTED[1][0]

def reads_a_module(x):
    x[0] = settings.FACTOR

def calls(x):
    x[0] = outer(x[1])

def calls_declared(x):
    x[0] = declared(x[1])

def calls_a_cpu_function(x):
    x[0] = on_a_cpu_too(x[1])
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    settings, made = ModuleType("settings"), ModuleType("notebook")
    settings.FACTOR = 2.5  # type: ignore[attr-defined]
    for each in (settings, made):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=(9, 0)))
    exec(compile(MODULE, "notebook.py", "exec"), vars(made))
    return made


def set_factor(module: ModuleType) -> None:
    module.FACTOR = 7.5  # type: ignore[attr-defined]


def set_table(module: ModuleType) -> None:
    module.TABLE[1] = 7.5


def set_tuple(module: ModuleType) -> None:
    module.NESTED = (1.25, (7.5,))  # type: ignore[attr-defined]


def set_in_module(module: ModuleType) -> None:
    module.settings.FACTOR = 7.5


SEVEN_AND_A_HALF = re.compile(r"40F00000|401E000000000000|1089470464|0x40F0", re.IGNORECASE)

CHANGES = [
    ("reads_a_global", set_factor),
    ("reads_a_table", set_table),
    ("reads_a_tuple", set_tuple),
    ("reads_a_module", set_in_module),
    ("calls", set_factor),
    ("calls_declared", set_factor),
    ("calls_a_cpu_function", set_factor),
]


@pytest.mark.parametrize("stored", [True, False], ids=["with a cache", "without"])
@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_change_of_what_a_kernel_reads_makes_another_image(
    module: ModuleType, name: str, change: Any, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not stored:
        monkeypatch.setenv(cache.VARIABLE, "")
    kernel = as_kernel(vars(module)[name])
    before = compile_kernel(kernel, (VECTOR,))
    assert compile_kernel(kernel, (VECTOR,)) is before
    assert not SEVEN_AND_A_HALF.search(before.ptx)
    change(module)
    after = compile_kernel(kernel, (VECTOR,))
    assert SEVEN_AND_A_HALF.search(after.ptx)
    assert after.cubin != before.cubin
    assert compile_kernel(kernel, (VECTOR,)) is after


def test_a_device_function_that_another_kernel_compiled_before_is_compiled_again(module: ModuleType) -> None:
    compile_kernel(as_kernel(module.calls), (VECTOR,))
    set_factor(module)

    def other(x):  # type: ignore[no-untyped-def]
        x[2] = outer(x[1])  # type: ignore[name-defined]  # noqa: F821

    kernel = as_kernel(FunctionType(other.__code__, vars(module)))
    assert SEVEN_AND_A_HALF.search(compile_kernel(kernel, (VECTOR,)).ptx)


def test_a_name_may_be_defined_after_a_failure(module: ModuleType) -> None:
    kernel = as_kernel(module.reads_a_global)
    del module.FACTOR
    with pytest.raises(CompileError, match="FACTOR"):
        compile_kernel(kernel, (VECTOR,))
    set_factor(module)
    assert SEVEN_AND_A_HALF.search(compile_kernel(kernel, (VECTOR,)).ptx)


def test_other_objects_that_hold_the_same_make_no_other_image(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = as_kernel(module.calls)
    before = compile_kernel(kernel, (VECTOR,))
    built = count_builds(monkeypatch)
    monkeypatch.setattr(cache, "load", lambda *_: None)
    exec(compile(MODULE, "notebook.py", "exec"), vars(module))  # as a notebook runs a cell again
    assert compile_kernel(kernel, (VECTOR,)) is before
    assert not built


def test_a_file_that_a_kernel_links_may_change(tmp_path: Path) -> None:
    source = tmp_path / "twice.cu"
    source.write_text('extern "C" __device__ int twice(int *out, int a) { *out = 2 * a; return 0; }')
    twice = cuda.declare_device("twice", types.int32(types.int32))

    def calls(x):  # type: ignore[no-untyped-def]
        x[0] = twice(x[1])

    kernel = Kernel(calls, (), {"link": [str(source)]})
    before = compile_kernel(kernel, (types.int32[::1],))
    assert compile_kernel(kernel, (types.int32[::1],)) is before
    source.write_text('extern "C" __device__ int twice(int *out, int a) { *out = 1234 * a; return 0; }')
    assert compile_kernel(kernel, (types.int32[::1],)).cubin != before.cubin
