"""C-10: updates of the copies and memsets of an exec."""

from __future__ import annotations

from tests.conformance.behaviour.answers import SUCCESS
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Graph
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"


def _sides(gpu: Gpu) -> dict[str, tuple[int, str]]:
    """Places to copy from: address and type."""
    pinned = gpu.pinned()
    return {
        "device": (gpu.memory(), "DEVICE"),
        "pinned as HOST": (pinned, "HOST"),
        "pinned as DEVICE": (pinned, "DEVICE"),
        "pageable": (gpu.pageable(), "HOST"),
    }


@trial("C-10.3", "A copy keeps the kind of memory on each side.")
def sides_of_copies(t: Recorder, gpu: Gpu) -> None:
    memory, places = gpu.memory(), _sides(gpu)
    for before, (source, kind) in places.items():
        graph = Graph(gpu)
        node = graph.memcpy(memory, source, 16, of=kind)
        ready = graph.instantiate()
        for after, (other, other_kind) in places.items():
            wanted = SUCCESS if after == before else REFUSED
            t.expect(
                f"source {before} to {after}", ready.set_memcpy(node, memory, other + 64, 16, of=other_kind), wanted
            )
        t.expect(f"launch, source {before}", ready.launch(), SUCCESS)


@trial("C-10.3", "A copy of one row may change addresses and width; it stays one row, and a width of 0 is refused.")
def widths_of_copies(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.memcpy(memory, memory + 256, 16)
    ready = graph.instantiate()
    for name, arguments, wanted in (
        ("other addresses", (memory + 512, memory + 1024, 16), SUCCESS),
        ("wider", (memory, memory + 256, 128), SUCCESS),
        ("narrower", (memory, memory + 256, 4), SUCCESS),
        ("width 0", (memory, memory + 256, 0), REFUSED),
        ("beyond the allocation", (memory, memory + 4096 - 8, 16), REFUSED),
        ("two rows", (memory, memory + 256, 4, 2), REFUSED),
    ):
        t.expect(name, ready.set_memcpy(node, *arguments), wanted)


@trial("C-10.3", "A copy of several rows or slices does not change.")
def updates_of_rows(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory(1 << 20)
    source, pitches = memory + 65536, {"srcPitch": 64, "dstPitch": 64}
    graph = Graph(gpu)
    node = graph.memcpy(memory, source, 16, 4, **pitches)
    ready = graph.instantiate()
    for name, arguments, fields, wanted in (
        ("the same again", (memory, source, 16, 4), pitches, SUCCESS),
        ("other target", (memory + 4096, source, 16, 4), pitches, REFUSED),
        ("other source", (memory, source + 4096, 16, 4), pitches, REFUSED),
        ("wider", (memory, source, 32, 4), pitches, REFUSED),
        ("one row less", (memory, source, 16, 3), pitches, REFUSED),
        ("other pitch", (memory, source, 16, 4), {"srcPitch": 64, "dstPitch": 128}, REFUSED),
        ("one row", (memory, source, 16), {}, REFUSED),
    ):
        t.expect(f"rows: {name}", ready.set_memcpy(node, *arguments, **fields), wanted)
    graph = Graph(gpu)
    node = graph.memcpy(memory, source, 16, 4, 2, **pitches, srcHeight=4, dstHeight=4)
    ready = graph.instantiate()
    answer = ready.set_memcpy(node, memory + 4096, source, 16, 4, 2, **pitches, srcHeight=4, dstHeight=4)
    t.expect("slices: other target", answer, REFUSED)


@trial("C-10.4", "A memset may change value and destination, on the same kind of memory; a size of 0 is refused.")
def memset_updates(t: Recorder, gpu: Gpu) -> None:
    memory, pinned, graph = gpu.memory(), gpu.pinned(), Graph(gpu)
    node, on_host = graph.memset(memory, 1, 8), graph.memset(pinned, 1, 8)
    ready = graph.instantiate()
    for name, target, arguments, size, wanted in (
        ("value", memory, (2, 8), 4, SUCCESS),
        ("destination", memory + 64, (2, 8), 4, SUCCESS),
        ("width 0", memory, (1, 0), 4, REFUSED),
        ("beyond the allocation", memory + 4096 - 16, (1, 8), 4, REFUSED),
        ("2 bytes off", memory + 2, (1, 8), 4, REFUSED),
        ("element of 3 bytes", memory, (1, 8), 3, REFUSED),
        ("two rows", memory, (1, 8, 2), 4, REFUSED),
        ("pageable", gpu.pageable(), (1, 8), 4, REFUSED),
        ("pinned", pinned, (1, 8), 4, REFUSED),
    ):
        pitch = 64 if len(arguments) == 3 else 0
        t.expect(name, ready.set_memset(node, target, *arguments, size=size, pitch=pitch), wanted)
    t.expect("pinned to device", ready.set_memset(on_host, memory, 1, 8), REFUSED)


@trial("C-10.4", "Other changes of a memset of one row may be refused or not.")
def opportunistic_memset_updates(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.memset(memory, 1, 8)
    ready = graph.instantiate()
    for name, width, size in (
        ("wider", 16, 4),
        ("narrower", 2, 4),
        ("elements of 1 byte, as many", 8, 1),
        ("elements of 1 byte, as many bytes", 32, 1),
        ("elements of 2 bytes", 8, 2),
    ):
        t.note(name, ready.set_memset(node, memory, 1, width, size=size))
        t.note("launch", ready.launch())
    bytes_of_one = graph.memset(memory, 1, 8, size=1)
    t.note("elements of 4 bytes, where they were of 1", graph.instantiate().set_memset(bytes_of_one, memory, 1, 8))
    t.note(
        "a value of 256 for elements of 1 byte", graph.instantiate().set_memset(bytes_of_one, memory, 256, 8, size=1)
    )


@trial("C-10.4", "A memset of several rows may change value and destination, and no dimension.")
def updates_of_memset_rows(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    node = graph.memset(memory, 1, 3, 4, pitch=64)
    ready = graph.instantiate()
    for name, target, arguments, fields, wanted in (
        ("value", memory, (9, 3, 4), {"pitch": 64}, SUCCESS),
        ("destination", memory + 1024, (9, 3, 4), {"pitch": 64}, SUCCESS),
        ("wider", memory, (9, 5, 4), {"pitch": 64}, REFUSED),
        ("narrower", memory, (9, 2, 4), {"pitch": 64}, REFUSED),
        ("one row less", memory, (9, 3, 3), {"pitch": 64}, REFUSED),
        ("other pitch", memory, (9, 3, 4), {"pitch": 128}, REFUSED),
        ("elements of 1 byte", memory, (9, 3, 4), {"pitch": 64, "size": 1}, REFUSED),
        ("one row", memory, (9, 3), {}, REFUSED),
    ):
        t.expect(name, ready.set_memset(node, target, *arguments, **fields), wanted)
    t.expect("launch", ready.launch(), SUCCESS)
