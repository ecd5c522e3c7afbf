"""What ``graphdsl doctor`` reports: what is installed, what works, what would run where, and what is missing.

Everything is tried, not only looked up: a kernel is compiled, a small graph runs on each device. Whatever goes wrong
becomes a line of the report, and one defect never hides another. This module must not change anything.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import graphdsl as gd
from graphdsl.draw.labels import count_text
from graphdsl.errors import GraphdslError

if TYPE_CHECKING:
    from rich.console import Group

    from graphdsl.drivers.base import Driver

DISTRIBUTION = "cuda-graphdsl"

_REINSTALL = f"pip install --upgrade --force-reinstall {DISTRIBUTION}"
_DRIVER = "Install the NVIDIA driver, 580 or newer, from https://www.nvidia.com/drivers"
_OLDEST_CUDA = (13, 0)
# What the metapackage cuda-python consists of, with the first version that will do and the first that will not.
_CUDA_PYTHON = {"cuda-bindings": ((13, 0), (14, 0)), "cuda-core": ((0, 5), (2, 0))}
_MARKS = {"ok": ("✓", "green"), "missing": ("✗", "red"), "absent": ("-", "dim")}


@dataclass(frozen=True)
class Item:
    """One thing that was looked at.

    Attributes
    ----------
    area : str
        What it belongs to: ``"packages"``, ``"compiler"``, ``"devices"`` or ``"files"``.
    name : str
        What was looked at.
    state : "ok", "missing" or "absent"
        There and working; needed but not so; not there, and not needed.
    found : str
        A version, a path, a device, or what went wrong.
    remedy : str
        What to do, where something can be done.
    """

    area: str
    name: str
    state: Literal["ok", "missing", "absent"]
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All that was looked at; rich prints it as a table with what to do below."""

    items: tuple[Item, ...]

    @property
    def ok(self) -> bool:
        """True if nothing that is needed is missing: graphs can run, on a GPU or in the emulator."""
        return all(item.state != "missing" for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """A dict for `json.dumps`."""
        return {"ok": self.ok, "items": [asdict(item) for item in self.items]}

    def __rich__(self) -> Group:
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table("", "area", "what", "found", box=SIMPLE_HEAD)
        for before, item in zip((None, *self.items), self.items):
            again = before is not None and before.area == item.area
            if before is not None and not again:
                table.add_section()
            table.add_row(Text(*_MARKS[item.state]), *map(Text, ("" if again else item.area, item.name, item.found)))
        remedies = [Text(f"{item.name}: {item.remedy}") for item in self.items if item.remedy]
        verdict = "Graphs can run here." if self.ok else "Something that graphs need is missing."
        return Group(table, Text(verdict, "bold"), *remedies)


def examine() -> Diagnosis:
    """Look at the installation and the devices of this machine, and try them. Takes a few seconds."""
    return Diagnosis((*_packages(), *_compiler(), *_devices(), *_files()))


def _probe(area: str, name: str, look: Callable[[], str], remedy: str, *, needed: bool = True) -> Item:
    """Try something; whatever it raises is the finding."""
    try:
        return Item(area, name, "ok", look())
    except Exception as problem:
        said = str(problem) if isinstance(problem, GraphdslError) else f"{type(problem).__name__}: {problem}"
        return Item(area, name, "missing" if needed else "absent", " ".join(said.split()), remedy)


# What is installed


def _packages() -> Iterator[Item]:
    yield Item("packages", "python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield Item("packages", "graphdsl", "ok", f"{gd.__version__}, {os.path.dirname(gd.__file__)}")
    for requirement in _requirements():
        name = re.split(r"[^\w.-]", requirement)[0]
        look = _cuda_python if name == "cuda-python" else partial(metadata.version, name)
        yield _probe("packages", name, look, f'pip install "{requirement}"')
    for name in _CUDA_PYTHON:
        yield _probe("packages", name, partial(metadata.version, name), "pip install --force-reinstall cuda-python")
    yield _probe(
        "packages",
        "graphviz",
        _graphviz,
        "apt install libglib2.0-0 libxrender1 libxext6, the libraries that its wheel needs",
    )


def _requirements() -> list[str]:
    """What the installed distribution requires without extras; nothing where the source is used without installing."""
    try:
        found = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    return [requirement for requirement in found if "extra ==" not in requirement]


def _cuda_python() -> str:
    """Its version, or that it can do without: it is a name for its parts, which are what counts."""
    try:
        return metadata.version("cuda-python")
    except metadata.PackageNotFoundError:
        for name, (first, beyond) in _CUDA_PYTHON.items():
            if not first <= tuple(map(int, metadata.version(name).split(".")[:2])) < beyond:
                raise
        return "its parts are there"


def _graphviz() -> str:
    from graphdsl.draw.dot import render, to_dot

    version = re.search(rb"graphviz version ([\d.]+)", render(to_dot(_graph()), "svg"))
    return f"{version[1].decode() if version else 'of unknown version'}, draws"


# What compiles


def _compiler() -> Iterator[Item]:
    for name in ("nvvm", "nvJitLink", "nvrtc"):
        yield _probe("compiler", name, partial(_library, name), _REINSTALL)
    yield _probe("compiler", "kernels", _compile, _REINSTALL)


def _library(name: str) -> str:
    from graphdsl.compile.toolkit import library

    return ", ".join(library(name))


def _compile() -> str:
    start = time.perf_counter()
    with _no_cache():
        _graph().check("sm_90").raise_for_errors()
    return f"one compiled for sm_90 in {time.perf_counter() - start:.1f} s"


@contextmanager
def _no_cache() -> Iterator[None]:
    """Compile anew: an image from the disk would hide a broken compiler."""
    from graphdsl.compile.cache import VARIABLE

    kept = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ""
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if kept is not None:
            os.environ[VARIABLE] = kept


# What runs


def _devices() -> Iterator[Item]:
    yield _probe("devices", "emulator", partial(_run, gd.emulator), _REINSTALL)
    driver = _probe("devices", "driver", _driver, _DRIVER, needed=False)
    yield driver
    for ordinal in range(_gpus() if driver.state == "ok" else 0):
        yield _probe("devices", f"cuda:{ordinal}", partial(_run, gd.cuda, ordinal), _DRIVER)
    where = "the first GPU, cuda:0" if driver.state == "ok" else "the emulator: there is no GPU that can be used"
    yield Item("devices", "default", "ok", f"graphs run on {where}")


def _driver() -> str:
    from graphdsl.drivers.cuda import devices, driver_version, unavailable

    reason = unavailable()
    if reason is not None:
        raise GraphdslError(reason)
    version = driver_version()
    text = f"CUDA {version[0]}.{version[1]}, {count_text(len(devices()), 'GPU')}"
    return text if version >= _OLDEST_CUDA else f"{text}; CUDA 13.0 is the oldest that is tested"


def _gpus() -> int:
    from graphdsl.drivers.cuda import devices

    return len(devices())


def _run(make: Callable[..., Driver], *arguments: Any) -> str:
    """Run a small graph on a device and compare its numbers."""
    device = make(*arguments)
    with _graph().instantiate(device) as graph_exec:
        graph_exec["before"][:] = np.arange(_COUNT)
        graph_exec.launch()
        graph_exec.synchronize()
        if not np.array_equal(graph_exec["after"], 2 * np.arange(_COUNT)):
            raise GraphdslError(f"a graph gave wrong numbers: {graph_exec['after']}")
    return f"{device.name}, ran a graph of 3 nodes"


_COUNT = 8


def _graph() -> gd.Graph:
    """Copies numbers to a device, doubles them and copies them back; its kernel is new, and so compiled again."""

    def double(numbers: Any) -> None:
        for i in range(numbers.size):
            numbers[i] *= 2

    graph = gd.Graph("doctor")
    before, after = (graph.host_array(name, _COUNT, np.float32) for name in ("before", "after"))
    numbers = graph.device_array("numbers", _COUNT, np.float32)
    with graph.sequence():
        graph.memcpy(numbers, before, name="load")
        graph.kernel(double, grid=1, block=1, args=(numbers,))
        graph.memcpy(after, numbers, name="store")
    return graph


# What lies on disk


def _files() -> Iterator[Item]:
    yield _probe(
        "files", "kernel cache", _cache, "Set GRAPHDSL_CACHE_DIR to a folder that can be written.", needed=False
    )


def _cache() -> str:
    from graphdsl.compile.cache import VARIABLE, folder

    place = folder()
    if place is None:
        return f"off: {VARIABLE} is empty"
    files = [path for path in place.iterdir() if path.is_file()] if place.is_dir() else []
    return f"{place}, {count_text(len(files), 'file')}, {sum(path.stat().st_size for path in files) / 2**20:.1f} MiB"
