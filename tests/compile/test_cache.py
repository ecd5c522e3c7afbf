"""Images on disk: found again, checked before use, shared by processes, and bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import cuda
from numba.cuda import types

import graphdsl.compile.numba as compiling
from graphdsl.compile import cache
from graphdsl.compile.image import KernelImage
from graphdsl.compile.numba import compile_kernel
from graphdsl.compile.signature import parameter_layout
from graphdsl.declare.kernel import Kernel

KINDS = (types.float32[::1], types.int32)
LAYOUT = parameter_layout(KINDS, ("x", "n"))
KEY = "a" * 64


def kernel(x, n):  # type: ignore[no-untyped-def]
    x[0] = n


def image(**changes: Any) -> KernelImage:
    values: dict[str, Any] = {
        "name": "kernel", "entry": "_Z6kernel", "cubin": b"\x7fELF\n\0code", "target": (9, 0), "layout": LAYOUT,
        "function": kernel, "shared_bytes": 400, "registers": 12, "max_threads": 1024, "ptx": "// PTX\n.entry",
    }  # fmt: skip
    return KernelImage(**{**values, **changes})


def load(key: str = KEY) -> KernelImage | None:
    return cache.load(key, "kernel", kernel, (9, 0), LAYOUT)


def same(first: KernelImage | None, second: KernelImage) -> bool:
    return first is not None and all(
        getattr(first, field.name) == getattr(second, field.name) for field in fields(KernelImage)
    )


def test_an_image_is_found_again(cache_folder: Path) -> None:
    assert load() is None
    cache.store(KEY, image())
    assert same(load(), image())
    assert load("b" * 64) is None
    assert [path.name for path in cache_folder.iterdir()] == [f"{KEY}.image"]
    assert cache_folder.stat().st_mode & 0o777 == 0o700


def test_an_entry_is_a_line_of_json_and_the_code(cache_folder: Path) -> None:
    cache.store(KEY, image())
    line, _, payload = (cache_folder / f"{KEY}.image").read_bytes().partition(b"\n")
    header = json.loads(line)
    assert (header["kernel"], header["target"], header["entry"]) == ("kernel", [9, 0], "_Z6kernel")
    assert header["parameters"] == [[leaf.offset, leaf.dtype.itemsize] for leaf in LAYOUT.leaves]
    assert payload == image().cubin + image().ptx.encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.data())
def test_a_damaged_entry_is_a_miss(cache_folder: Path, data: st.DataObject) -> None:
    cache.store(KEY, image())
    path = cache_folder / f"{KEY}.image"
    whole = path.read_bytes()
    damage = data.draw(st.sampled_from(["cut", "changed", "longer", "other"]))
    if damage == "cut":
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    elif damage == "changed":
        place, flip = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
        path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
    elif damage == "longer":
        path.write_bytes(whole + data.draw(st.binary(min_size=1)))
    else:
        path.write_bytes(data.draw(st.binary() | st.sampled_from([b"[]\n", b"null\n", b"{}\n", b'"text"\n', b"3\n"])))
    found = load()
    assert found is None or same(found, image())  # another space in the JSON is no damage
    cache.store(KEY, image())
    assert same(load(), image())


def test_an_entry_of_another_key_or_layout_is_a_miss(cache_folder: Path) -> None:
    cache.store(KEY, image())
    (cache_folder / f"{KEY}.image").rename(cache_folder / f"{'b' * 64}.image")
    assert load("b" * 64) is None
    cache.store(KEY, image(layout=parameter_layout((types.float32[::1], types.int64))))
    assert load() is None


def test_a_folder_that_cannot_be_used_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        monkeypatch.setattr(cache, "folder", lambda folder=folder: folder)
        cache.store(KEY, image())
        assert load() is None


def test_where_entries_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv(cache.VARIABLE)
    assert cache.folder() == tmp_path / "xdg" / "graphdsl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == tmp_path / ".cache" / "graphdsl"
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "own"))
    assert cache.folder() == tmp_path / "own"
    monkeypatch.setenv(cache.VARIABLE, "")
    assert cache.folder() is None
    cache.store(KEY, image())
    assert load() is None


def test_entries_not_used_for_longest_go_first(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [letter * 64 for letter in "abcd"]
    for age, key in enumerate(keys[:3]):
        cache.store(key, image(cubin=bytes(10_000)))
        os.utime(cache_folder / f"{key}.image", (1000 + age, 1000 + age))
    assert load(keys[0]) is not None  # used just now
    stray = cache_folder / f"{KEY}x.tmp"
    stray.write_bytes(bytes(5_000))
    os.utime(stray, (1, 1))
    foreign = cache_folder / "notes.txt"
    foreign.write_bytes(bytes(50_000))
    monkeypatch.setattr(cache, "LIMIT_BYTES", 32_000)
    cache.store(keys[3], image(cubin=bytes(10_000)))
    assert [load(key) is not None for key in keys] == [True, False, True, True]
    assert not stray.exists()
    assert foreign.exists()


WRITER = """
import sys
from graphdsl.compile import cache
from graphdsl.compile.image import KernelImage, ParameterLayout

layout, number = ParameterLayout((), 0, ()), int(sys.argv[1])
sys.stdin.readline()
for turn in range(200):
    cubin = bytes([number]) * 20_000
    cache.store("k", KernelImage("kernel", "entry", cubin, (9, 0), layout, print, 0, 8, 1024, str(number)))
    found = cache.load("k", "kernel", print, (9, 0), layout)
    assert found is not None and found.cubin == bytes([int(found.ptx)]) * 20_000
"""


def test_processes_that_write_together_leave_whole_entries(cache_folder: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(number)], stdin=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert [path.name for path in cache_folder.iterdir()] == ["k.image"]


def test_a_write_that_fails_leaves_nothing(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "replace", refuse)
    cache.store(KEY, image())
    assert list(cache_folder.iterdir()) == []


# With the compiler


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were really compiled."""
    built: list[str] = []
    build = compiling._build

    def counted(kernel: Kernel, *args: Any) -> KernelImage:
        built.append(kernel.name)
        return build(kernel, *args)

    monkeypatch.setattr(compiling, "_build", counted)
    return built


def scaled_by(factor: Any, helper: Any = None) -> Callable[..., None]:
    if helper is None:

        def kernel(x, n):  # type: ignore[no-untyped-def]
            x[0] = x[1] * factor

    else:

        def kernel(x, n):  # type: ignore[no-untyped-def]
            x[0] = helper(x[1]) * factor

    return kernel


def compiled(
    function: Callable[..., None], kinds: Any = KINDS, target: tuple[int, int] = (9, 0), **options: Any
) -> KernelImage:
    """As in a process of its own: nothing is remembered but what lies on disk."""
    return compile_kernel(Kernel(function, (), options), kinds, target)


def test_another_process_need_not_compile(builds: list[str]) -> None:
    first = compiled(scaled_by(2.0))
    function = scaled_by(2.0)
    second = compiled(function)
    assert builds == ["kernel"]
    assert second.function is function
    assert same(second, KernelImage(**{**vars(first), "function": function}))


def test_whatever_the_code_follows_from_compiles_again(builds: list[str]) -> None:
    @cuda.jit(device=True)
    def plus(a):  # type: ignore[no-untyped-def]
        return a + 1

    @cuda.jit(device=True)
    def minus(a):  # type: ignore[no-untyped-def]
        return a - 1

    def all_of_them() -> None:
        compiled(scaled_by(2.0))
        compiled(scaled_by(3.0))
        compiled(scaled_by(2.0, plus))
        compiled(scaled_by(2.0, minus))
        compiled(scaled_by(2.0), (types.float64[::1], types.int32))
        compiled(scaled_by(2.0), target=(8, 0))
        compiled(scaled_by(2.0), fastmath=True)

    all_of_them()
    assert len(builds) == 7
    all_of_them()
    assert len(builds) == 7


def test_a_damaged_entry_is_compiled_again_and_replaced(builds: list[str], cache_folder: Path) -> None:
    compiled(scaled_by(2.0))
    (path,) = cache_folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    compiled(scaled_by(2.0))
    assert len(builds) == 2
    compiled(scaled_by(2.0))
    assert len(builds) == 2


def test_a_kernel_that_has_no_fingerprint_is_compiled_each_time(builds: list[str], cache_folder: Path) -> None:
    declared = cuda.declare_device("declared", "int32(int32)")

    def kernel(x, n):  # type: ignore[no-untyped-def]
        if False:
            declared(n)
        x[0] = n

    compiled(kernel)
    compiled(kernel)
    assert builds == ["kernel", "kernel"]
    assert not cache_folder.exists()
