"""C-4: memset nodes."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Graph
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"
_SIZE = 1 << 20


def filled(gpu: Gpu, *args: Any, **fields: Any) -> Answer:
    """Add a memset; if it is accepted, the answer to running it, too."""
    graph = Graph(gpu)
    added = graph.memset(*args, **fields)
    return added if added.code != SUCCESS else graph.instantiate().launch()


@trial("C-4.1", "Elements have 1, 2 or 4 bytes.")
def element_sizes(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for size, wanted in ((1, SUCCESS), (2, SUCCESS), (4, SUCCESS), (0, REFUSED), (3, REFUSED), (8, REFUSED)):
        t.expect(f"{size} bytes", filled(gpu, memory, 1, size=size), wanted)


@trial("C-4.1", "The value fits the element.")
def values(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for size, value in ((1, 0x1FF), (2, 0x1FFFF)):
        t.expect(f"{value:#x} in {size} bytes", filled(gpu, memory, value, 4, size=size), REFUSED)
        t.note(f"memory after {value:#x} in {size} bytes", f"{gpu.read(memory) & 0xFFFFFFFF:#x}")
        gpu.clear(memory)


@trial("C-4.1", "The pitch is ignored for one row; for several it is at least a row, in whole elements.")
def memset_pitches(t: Recorder, gpu: Gpu) -> None:
    memory, most = gpu.memory(), gpu.attribute("MAX_PITCH")
    t.note("2 rows, pitch over the maximum, in less memory", filled(gpu, memory, 1, 1, 2, pitch=most + 1))
    t.note("2 rows, pitch over the maximum, in enough", filled(gpu, gpu.memory(most + 4096), 1, 1, 2, pitch=most + 1))
    for name, extent, pitch, wanted in (
        ("one row, pitch 3", (8, 1), 3, SUCCESS),
        ("one row, pitch 2**33", (8, 1), 1 << 33, SUCCESS),
        ("4 rows of 3 elements of 4 bytes, pitch 64", (3, 4), 64, SUCCESS),
        ("4 rows of 3, pitch 12: no gap", (3, 4), 12, SUCCESS),
        ("4 rows of 3, pitch 8", (3, 4), 8, REFUSED),
        ("4 rows of 3, pitch 0", (3, 4), 0, REFUSED),
        ("4 rows of 1, pitch 6", (1, 4), 6, REFUSED),
    ):
        t.expect(name, filled(gpu, memory, 1, *extent, pitch=pitch), wanted)


@trial("C-4.2", "Width and height are at least 1.")
def empty_memsets(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    t.expect("width 0", filled(gpu, memory, 1, 0), REFUSED)
    t.expect("height 0", filled(gpu, memory, 1, 1, 0), REFUSED)


@trial(
    "C-4.2",
    "The destination is aligned to the element, and lies inside one allocation of device or pinned memory.",
)
def destinations(t: Recorder, gpu: Gpu) -> None:
    memory, pinned, released = gpu.memory(_SIZE), gpu.pinned(), gpu.memory(_SIZE)
    must(driver.cuMemFree, released)
    end = memory + _SIZE
    for name, target, extent, fields, wanted in (
        ("2 bytes off, elements of 4", memory + 2, (1,), {}, REFUSED),
        ("1 byte off, elements of 2", memory + 1, (1,), {"size": 2}, REFUSED),
        ("1 byte off, elements of 1", memory + 1, (1,), {"size": 1}, SUCCESS),
        ("to the last byte", end - 16, (4,), {}, SUCCESS),
        ("one element beyond", end - 16, (5,), {}, REFUSED),
        ("far beyond", end + (1 << 30), (1,), {}, REFUSED),
        ("last row to the last byte", memory, (16, _SIZE // 64), {"pitch": 64}, SUCCESS),
        ("one row beyond", memory, (16, _SIZE // 64 + 1), {"pitch": 64}, REFUSED),
        ("pinned", pinned, (4,), {}, SUCCESS),
        ("pageable", gpu.pageable(), (4,), {}, REFUSED),
        ("NULL", 0, (4,), {}, REFUSED),
        ("released", released, (4,), {}, REFUSED),
    ):
        t.expect(name, filled(gpu, target, 1, *extent, **fields), wanted)


@trial("C-4.3", "The context is an argument of the call, or a field of the struct for the calls that take any node.")
def memset_contexts(t: Recorder, gpu: Gpu) -> None:
    memory, plain = gpu.memory(), params.fill(gpu.memory(), 5)
    t.note("argument NULL", ask(driver.cuGraphAddMemsetNode, Graph(gpu).raw, [], 0, plain, 0))
    for name, context in (("set", gpu.context), ("NULL", 0)):
        made = driver.CUgraphNodeParams()
        made.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
        made.memset.dst, made.memset.value, made.memset.elementSize = memory, 5, 4
        made.memset.width, made.memset.height, made.memset.ctx = 1, 1, context
        graph = Graph(gpu)
        added = graph.generic(made)
        answer = added if added.code != SUCCESS else graph.instantiate().launch()
        if context:
            t.expect(f"field {name}", answer, SUCCESS)
        else:
            t.note(f"field {name}", answer)
