"""C-2: kernel nodes: what they launch, and with what."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, must
from tests.conformance.behaviour.gpu import Gpu
from tests.conformance.behaviour.graph import Graph, set_attribute
from tests.conformance.behaviour.params import COOPERATIVE
from tests.conformance.behaviour.trials import Recorder, trial

REFUSED = "INVALID_VALUE"
_SHARED = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0  # CU_LAUNCH_PARAM_*


def _extra(gpu: Gpu, made: Any, address: int, value: int) -> Any:
    """Launch parameters with the arguments of ``put`` as one buffer."""
    buffer = (ctypes.c_uint64 * 2)(address, value)
    size = ctypes.c_size_t(12)
    array = (ctypes.c_void_p * 5)(_BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END)
    gpu.keep((buffer, size, array))
    made.extra = ctypes.addressof(array)
    return made


@trial("C-2.1", "Arguments come as `kernelParams` or as `extra`, not both, and cooperative kernels take no `extra`.")
def both_kinds_of_arguments(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    t.expect("both", graph.kernel_with(_extra(gpu, gpu.launch_params("put", memory, 1), memory, 7)), REFUSED)
    made = gpu.launch_params("put", memory, 1)
    made.kernelParams = 0
    t.expect("neither, where the kernel has parameters", graph.kernel_with(made), REFUSED)
    node = graph.kernel_with(_extra(gpu, made, memory, 7))
    t.expect("extra alone", node, SUCCESS)
    t.note("what came of it", (graph.instantiate().launch(), gpu.read(memory))[1])
    cooperative = set_attribute(node, COOPERATIVE, cooperative=1)
    t.expect(
        "extra and cooperative, at the attribute or at instantiate",
        cooperative if cooperative.code != SUCCESS else graph.instantiate(),
        REFUSED,
    )


@trial("C-2.2", "The image tells number, place and size of the arguments; past the last it answers INVALID_VALUE.")
def argument_info(t: Recorder, gpu: Gpu) -> None:
    kernel = gpu.kernel("put")
    for index, wanted in enumerate(("(0, 8)", "(8, 4)")):
        t.expect(f"argument {index} of put(int *, int)", must(driver.cuKernelGetParamInfo, kernel, index), wanted)
    t.expect("past the last", ask(driver.cuKernelGetParamInfo, kernel, 2), REFUSED)
    t.expect("past the last, of a function", ask(driver.cuFuncGetParamInfo, gpu.function("put"), 2), REFUSED)
    t.expect("an unknown kernel", ask(driver.cuLibraryGetKernel, gpu.library(), b"unknown"), "NOT_FOUND")


@trial("C-2.2", "The array of arguments and their values are copied by the call.")
def arguments_are_copied(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    address, value = ctypes.c_uint64(memory), ctypes.c_int(5)
    array = (ctypes.c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(value))
    made = gpu.launch_params("put", memory, 5)
    made.kernelParams = ctypes.addressof(array)
    node = graph.kernel_with(made)
    value.value, array[0] = 6, None
    ready = graph.instantiate()
    ready.launch().must()
    t.expect("value changed after the node was added", gpu.read(memory), 5)
    array[0], value.value = ctypes.addressof(address), 7
    ready.set_kernel_with(node, made).must()
    value.value = 8
    ready.launch().must()
    t.expect("value changed after an update of the exec", gpu.read(memory), 7)


def _add_with_array(gpu: Gpu, name: str, pointers: list[int]) -> Answer:
    """Add a kernel whose array of arguments ends where the memory that may be read ends."""
    page = mmap.PAGESIZE
    pages = gpu.keep(mmap.mmap(-1, 2 * page))
    end = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + page
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), page, 0)
    start = end - 8 * len(pointers)
    (ctypes.c_void_p * len(pointers)).from_address(start)[:] = pointers
    made = gpu.launch_params(name, gpu.memory(), 1, 1)
    made.kernelParams = start
    return Graph(gpu).kernel_with(made)


@trial("C-2.2", "An array with too few arguments: the driver reads past its end, and the process dies.", ending="dies")
def too_few_arguments(t: Recorder, gpu: Gpu) -> None:
    memory = ctypes.c_uint64(gpu.memory())
    t.note("put(int *, int) with one argument", _add_with_array(gpu, "put", [ctypes.addressof(memory)]))


@trial("C-2.2", "An argument whose pointer is NULL is refused.")
def null_arguments(t: Recorder, gpu: Gpu) -> None:
    memory, value = ctypes.c_uint64(gpu.memory()), ctypes.c_int(5)
    last = _add_with_array(gpu, "put", [ctypes.addressof(memory), 0])
    t.expect("put(int *, int) with NULL for the second", last, REFUSED)
    first = _add_with_array(gpu, "put", [0, ctypes.addressof(value)])
    t.expect("put(int *, int) with NULL for the first", first, REFUSED)


@trial("C-2.2", "An array with more arguments than the kernel has is accepted; the rest is not looked at.")
def too_many_arguments(t: Recorder, gpu: Gpu) -> None:
    memory, value = ctypes.c_uint64(gpu.memory()), ctypes.c_int(5)
    pointers = [ctypes.addressof(memory), ctypes.addressof(value), 8]
    t.expect("put(int *, int) with a third pointer that leads nowhere", _add_with_array(gpu, "put", pointers), SUCCESS)


@trial("C-2.3", "A kernel is named by `func`, or by `kern` and `ctx`; without a context the current one is meant.")
def kernel_names(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)
    made = gpu.launch_params("put", memory, 1)
    made.func = 0
    t.expect("neither", graph.kernel_with(made), ("INVALID_HANDLE", REFUSED))
    made.kern = gpu.kernel("put")
    t.expect("kern alone", graph.kernel_with(made), SUCCESS)
    made.ctx = gpu.context
    t.expect("kern and ctx", graph.kernel_with(made), SUCCESS)
    t.expect("launch", graph.instantiate().launch(), SUCCESS)
    must(driver.cuCtxSetCurrent, 0)
    made.ctx = 0
    t.note("kern alone, with no context current", Graph(gpu).kernel_with(made))


@trial("C-2.3", "`ctx` is ignored where `func` is set.")
def context_beside_function(t: Recorder, gpu: Gpu) -> None:
    made = gpu.launch_params("put", gpu.memory(), 1)
    made.ctx = 0xDEAD
    t.expect("func and a wrong ctx", Graph(gpu).kernel_with(made), SUCCESS)


@trial("C-2.3", "A wrong `kern`: the process dies.", ending="dies")
def wrong_kernel(t: Recorder, gpu: Gpu) -> None:
    made = gpu.launch_params("put", gpu.memory(), 1)
    made.func, made.kern, made.ctx = 0, 0xDEAD, gpu.context
    t.note("kern 0xdead", Graph(gpu).kernel_with(made))


@trial("C-2.3", "A wrong `ctx` beside `kern`: the process dies.", ending="dies")
def wrong_context(t: Recorder, gpu: Gpu) -> None:
    made = gpu.launch_params("put", gpu.memory(), 1)
    made.func, made.kern, made.ctx = 0, gpu.kernel("put"), 0xDEAD
    t.note("ctx 0xdead", Graph(gpu).kernel_with(made))


@trial("C-2.4", "Grid and block are at least 1 and within the device's and the kernel's limits, or the add is refused.")
def launch_dimensions(t: Recorder, gpu: Gpu) -> None:
    graph, memory = Graph(gpu), gpu.memory()
    for grid in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (2**31, 1, 1), (1, 65536, 1), (1, 1, 65536)):
        t.expect(f"grid {grid}", graph.kernel("put", memory, 1, grid=grid), REFUSED)
    for block in ((0, 1, 1), (1, 0, 1), (1025, 1, 1), (32, 64, 1), (1, 1, 65), (2048, 1, 1)):
        t.expect(f"block {block}", graph.kernel("put", memory, 1, block=block), REFUSED)
    for block in ((1024, 1, 1), (1, 1, 64)):
        t.expect(f"block {block}", graph.kernel("put", memory, 1, block=block), SUCCESS)
    for grid in ((2**31 - 1, 1, 1), (1, 65535, 1), (1, 1, 65535)):
        t.expect(f"grid {grid}", graph.kernel("nothing", grid=grid), SUCCESS)
    t.expect("launch bounds of 128, block 128", graph.kernel("bounded", memory, block=128), SUCCESS)
    t.expect("launch bounds of 128, block 256", graph.kernel("bounded", memory, block=256), REFUSED)


@trial(
    "C-2.5",
    "Dynamic shared memory has a maximum, by default 48 KiB less the static; it may be set up to opt-in less static.",
)
def shared_memory(t: Recorder, gpu: Gpu) -> None:
    graph, memory, most = Graph(gpu), gpu.memory(), gpu.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")

    def add(name: str, nbytes: int) -> Answer:
        return graph.kernel(name, memory, *([1] if name == "put" else []), shared=nbytes)

    for name, static in (("put", 0), ("shared_1024", 1024)):
        function, default = gpu.function(name), 49152 - static
        t.expect(f"static {static}, {default}", add(name, default), SUCCESS)
        t.expect(f"static {static}, {default + 1}", add(name, default + 1), REFUSED)
        t.expect(
            f"maximum set to {most - static}", ask(driver.cuFuncSetAttribute, function, _SHARED, most - static), SUCCESS
        )
        t.expect(f"added with {most - static}", add(name, most - static), SUCCESS)
        t.expect(
            f"maximum set to {most - static + 1}",
            ask(driver.cuFuncSetAttribute, function, _SHARED, most - static + 1),
            REFUSED,
        )
        t.expect(f"added with {most - static + 1}", add(name, most - static + 1), REFUSED)
    function = gpu.function("put")
    t.expect("maximum set to -1", ask(driver.cuFuncSetAttribute, function, _SHARED, -1), REFUSED)
    t.expect("maximum set to 0", ask(driver.cuFuncSetAttribute, function, _SHARED, 0), SUCCESS)
    t.expect("maximum lowered to 10", ask(driver.cuFuncSetAttribute, function, _SHARED, 10), SUCCESS)
    t.expect("added with 11", add("put", 11), REFUSED)
    t.note("launch of the nodes added with more before it was lowered", graph.instantiate().launch())


@trial("C-2.5", "A maximum set on the function overrides one set on the kernel, whatever the order.")
def shared_memory_of_kernel_and_function(t: Recorder, gpu: Gpu) -> None:
    function, kernel, memory = gpu.function("put"), gpu.kernel("put"), gpu.memory()

    def limit() -> str:
        """The most of some sizes that can be added."""
        sizes = (49152, 60000, 70000, 80000)
        added = [size for size in sizes if Graph(gpu).kernel("put", memory, 1, shared=size).code == SUCCESS]
        return str(max(added))

    must(driver.cuKernelSetAttribute, _SHARED, 60000, kernel, gpu.device)
    t.expect("kernel set to 60000", limit(), 60000)
    must(driver.cuFuncSetAttribute, function, _SHARED, 70000)
    t.expect("then the function to 70000", limit(), 70000)
    must(driver.cuKernelSetAttribute, _SHARED, 80000, kernel, gpu.device)
    t.expect("then the kernel to 80000", limit(), 70000)
    t.expect("what the kernel says of itself", must(driver.cuKernelGetAttribute, _SHARED, kernel, gpu.device), 80000)
    t.note("what the function says of itself", must(driver.cuFuncGetAttribute, _SHARED, function))


@trial("C-2.6", "Parameters may take 4,096 bytes, and 32,764 from CUDA 12.1 on sm_70 on.")
def parameter_bytes(t: Recorder, gpu: Gpu) -> None:
    memory = gpu.memory()

    def block(nbytes: int, last: int) -> Any:
        made = (ctypes.c_char * nbytes)()
        ctypes.c_uint64.from_buffer(made).value = memory
        ctypes.c_byte.from_buffer(made, nbytes - 1).value = last
        return made

    for nbytes in (4096, 4104, 32760):
        name, graph = f"block_{nbytes}", Graph(gpu)
        node = graph.kernel(name, block(nbytes, 5))
        t.expect(f"add with {nbytes} bytes", node, SUCCESS)
        ready = graph.instantiate()
        ready.launch().must()
        t.expect(f"the last of {nbytes} bytes is 5: seen", gpu.read(memory), 5)
        t.expect(f"exec update with {nbytes} bytes", ready.set_kernel(node, name, block(nbytes, 6)), SUCCESS)
        ready.launch().must()
        t.expect(f"the last of {nbytes} bytes updated to 6: seen", gpu.read(memory), 6)


@trial("C-2.7", "No texture or surface references.")
def texture_references(t: Recorder, gpu: Gpu) -> None:
    t.cannot("the CUDA 13 compilers make none")
