"""C-3: memcpy nodes."""

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


def copied(gpu: Gpu, *args: Any, **fields: Any) -> Answer:
    """Add a copy; if it is accepted, the answer to running it, too."""
    graph = Graph(gpu)
    added = graph.memcpy(*args, **fields)
    return added if added.code != SUCCESS else graph.instantiate().launch()


@trial("C-3.1", "A pitch is at least as long as the row and what lies before it, and at most the device's maximum.")
def pitches(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory(_SIZE)
    source, most = memory + 65536, gpu.attribute("MAX_PITCH")
    for name, shape, fields, wanted in (
        ("4 rows of 16, pitches 64", (16, 4), {"srcPitch": 64, "dstPitch": 64}, SUCCESS),
        ("pitches 16, as long as a row", (16, 4), {"srcPitch": 16, "dstPitch": 16}, SUCCESS),
        ("pitches 17 and 19", (16, 4), {"srcPitch": 17, "dstPitch": 19}, SUCCESS),
        ("source pitch 8", (16, 4), {"srcPitch": 8, "dstPitch": 64}, REFUSED),
        ("target pitch 8", (16, 4), {"srcPitch": 64, "dstPitch": 8}, REFUSED),
        ("pitch 64, x offset 56", (16, 4), {"srcPitch": 64, "dstPitch": 64, "srcXInBytes": 56}, REFUSED),
        ("pitches 0: rows without gaps", (16, 4), {}, SUCCESS),
        ("one row, pitch 8", (16, 1), {"srcPitch": 8, "dstPitch": 8}, (SUCCESS, REFUSED)),
        ("one row, pitch over the maximum", (16, 1), {"srcPitch": most + 1, "dstPitch": most + 1}, (SUCCESS, REFUSED)),
        ("two rows, pitch over the maximum", (16, 2), {"srcPitch": most + 1, "dstPitch": most + 1}, REFUSED),
    ):
        t.expect(name, copied(gpu, memory, source, *shape, **fields), wanted)


@trial("C-3.1", "A slice's height is at least that of the copied part, if given; LOD is 0.")
def slices(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory(_SIZE)
    source, rows = memory + 65536, {"srcPitch": 64, "dstPitch": 64}
    for name, fields, wanted in (
        ("heights 4 of 4 rows", {"srcHeight": 4, "dstHeight": 4}, SUCCESS),
        ("heights 6 of 4 rows", {"srcHeight": 6, "dstHeight": 6}, SUCCESS),
        ("heights 0", {}, SUCCESS),
        ("source height 2", {"srcHeight": 2, "dstHeight": 4}, REFUSED),
        ("target height 2", {"srcHeight": 4, "dstHeight": 2}, REFUSED),
        ("height 4 and y offset 1", {"srcHeight": 4, "dstHeight": 4, "srcY": 1}, REFUSED),
        ("LOD 1", {"srcHeight": 4, "dstHeight": 4, "srcLOD": 1}, REFUSED),
    ):
        t.expect(f"two slices, {name}", copied(gpu, memory, source, 16, 4, 2, **rows, **fields), wanted)


@trial("C-3.1", "Offsets into CUDA arrays are multiples of the element's size.")
def array_offsets(t: Recorder, gpu: Gpu) -> None:
    made = driver.CUDA_ARRAY_DESCRIPTOR()
    made.Width, made.Height, made.NumChannels = 64, 4, 1
    made.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
    array, memory = must(driver.cuArrayCreate, made), gpu.memory()
    for offset, wanted in ((0, SUCCESS), (4, SUCCESS), (2, REFUSED), (256, REFUSED)):
        copy = params.copy(0, memory, 16, dstXInBytes=offset)
        copy.dstMemoryType, copy.dstArray = driver.CUmemorytype.CU_MEMORYTYPE_ARRAY, array
        graph = Graph(gpu)
        added = ask(driver.cuGraphAddMemcpyNode, graph.raw, [], 0, copy, gpu.context)
        t.expect(f"offset of {offset} bytes", added if added.code != SUCCESS else graph.instantiate().launch(), wanted)


@trial("C-3.2", "Type UNIFIED takes any address where addressing is unified.")
def unified(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    managed = int(must(driver.cuMemAllocManaged, 4096, int(driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)))
    for name, source in (
        ("device", memory + 64),
        ("pinned", gpu.pinned()),
        ("pageable", gpu.pageable()),
        ("managed", managed),
    ):
        t.expect(f"{name}, as UNIFIED", copied(gpu, memory, source, 16, of="UNIFIED", to="UNIFIED"), SUCCESS)
    t.expect("managed, as DEVICE", copied(gpu, memory, managed, 16), SUCCESS)


@trial("C-3.2", "Without concurrent managed access, managed memory is not UNIFIED.")
def managed_without_concurrent_access(t: Recorder, gpu: Gpu) -> None:
    if gpu.attribute("CONCURRENT_MANAGED_ACCESS"):
        t.cannot("this device has concurrent managed access")
    managed = int(must(driver.cuMemAllocManaged, 4096, int(driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)))
    t.expect("managed, as UNIFIED", copied(gpu, gpu.memory(), managed, 16, of="UNIFIED", to="UNIFIED"), REFUSED)


@trial("C-3.3", "A copy of nothing is refused.")
def empty_copies(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    for name, extent in (("width", (0, 1, 1)), ("height", (16, 0, 1)), ("depth", (16, 1, 0))):
        t.expect(f"{name} 0", copied(gpu, memory, memory + 64, *extent), REFUSED)


@trial("C-3.4", "Pageable host memory may be copied; each side's type has to fit its address.")
def sides(t: Recorder, gpu: Gpu) -> None:
    memory, pinned, pageable = gpu.memory(), gpu.pinned(), gpu.pageable()
    for name, source, kind, wanted in (
        ("pageable, as HOST", pageable, "HOST", SUCCESS),
        ("pinned, as HOST", pinned, "HOST", SUCCESS),
        ("pinned, as DEVICE", pinned, "DEVICE", SUCCESS),
        ("pageable, as DEVICE", pageable, "DEVICE", REFUSED),
        ("device, as HOST: the address decides", memory + 64, "HOST", (SUCCESS, REFUSED)),
    ):
        t.expect(name, copied(gpu, memory, source, 16, of=kind), wanted)
    t.expect("host to host, pinned", copied(gpu, pinned, pinned + 64, 16, of="HOST", to="HOST"), SUCCESS)
    t.expect("host to host, pageable", copied(gpu, pageable, pageable + 64, 16, of="HOST", to="HOST"), SUCCESS)


@trial("C-3.5", "Each side lies inside one allocation.")
def ranges(t: Recorder, gpu: Gpu) -> None:
    memory, pinned, released = gpu.memory(_SIZE), gpu.pinned(), gpu.memory(_SIZE)
    must(driver.cuMemFree, released)
    end = memory + _SIZE
    for name, source, fields, wanted in (
        ("to the last byte", end - 16, {}, SUCCESS),
        ("one byte beyond", end - 15, {}, REFUSED),
        ("far beyond", end + (1 << 30), {}, REFUSED),
        ("beyond by the x offset", end - 16, {"srcXInBytes": 1}, REFUSED),
        ("NULL", 0, {}, REFUSED),
        ("NULL, as HOST", 0, {"of": "HOST"}, REFUSED),
        ("released", released, {}, REFUSED),
        ("beyond pinned memory, as HOST", pinned + 4096 - 8, {"of": "HOST"}, REFUSED),
    ):
        t.expect(name, copied(gpu, memory, source, 16, **fields), wanted)
    rows = {"srcPitch": 64, "dstPitch": 64}
    t.expect("last row to the last byte", copied(gpu, memory, end - 80, 16, 2, **rows), SUCCESS)
    t.expect("last row one byte beyond", copied(gpu, memory, end - 79, 16, 2, **rows), REFUSED)
    t.expect("overlapping sides", copied(gpu, memory, memory + 8, 16), SUCCESS)
    t.expect("a width of 2**40", copied(gpu, memory, memory + 64, 1 << 40), REFUSED)


@trial("C-3.6", "The context of a copy is a valid one.")
def copy_contexts(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    answer = ask(driver.cuGraphAddMemcpyNode, Graph(gpu).raw, [], 0, params.copy(memory, memory + 64, 16), 0)
    t.note("NULL", answer)


@trial("C-3.6", "A wrong context: the process dies.", ending="dies")
def wrong_copy_context(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()
    answer = ask(driver.cuGraphAddMemcpyNode, Graph(gpu).raw, [], 0, params.copy(memory, memory + 64, 16), 0xDEAD)
    t.note("0xdead", answer)


@trial("C-3.6", "A copy between two devices runs where both can reach each other, in the context that it is given.")
def peer_copies(t: Recorder, gpu: Gpu) -> None:
    if must(driver.cuDeviceGetCount) < 2:
        t.cannot("it needs two GPUs")
    second = must(driver.cuDeviceGet, 1)
    context = must(driver.cuDevicePrimaryCtxRetain, second)
    memory = gpu.memory()
    gpu.fill(memory, 9)
    must(driver.cuCtxSetCurrent, context)
    there = gpu.memory()
    must(driver.cuCtxSetCurrent, gpu.context)
    t.note("either can reach the other", must(driver.cuDeviceCanAccessPeer, gpu.device, second))
    for name, chosen in (("first", gpu.context), ("second", context)):
        graph = Graph(gpu)
        added = ask(driver.cuGraphAddMemcpyNode, graph.raw, [], 0, params.copy(there, memory, 16), chosen)
        t.expect(f"to the second device, context of the {name}", added, SUCCESS)
        t.expect(f"launch, context of the {name}", graph.instantiate().launch(), SUCCESS)
        t.expect(f"what came over, context of the {name}", gpu.read(there), 9)
