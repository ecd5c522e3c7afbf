"""What each node kind refuses, with the codes that driver 580 gave on an H200, and what it does."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numba import cuda, types

from graphdsl.compile.image import ArrayValue
from graphdsl.drivers.emulator import Emulator
from graphdsl.drivers.emulator.problems import OUTSIDE_ARRAY
from graphdsl.errors import DriverError, MemoryFault
from tests.drivers.emulator.conftest import Bench, refused, sync_fault, updated

I4 = types.Array(types.int32, 1, "C")
KINDS = (I4, types.int32)


def fill(out, value):
    out[cuda.grid(1)] = value


def add(out, value):
    out[cuda.grid(1)] += value


# Kernel nodes


def kernel_node(bench: Bench, **fields: Any) -> int:
    options = {name: fields.pop(name) for name in ("shared_bytes_static", "max_threads") if name in fields}
    kernel = bench.load(
        fill, *KINDS, shared_bytes=options.get("shared_bytes_static", 0), max_threads=options.get("max_threads", 1024)
    )
    array = ArrayValue(bench.device.mem_alloc(4096), (1024,), (4,))
    return bench.kernel(kernel, KINDS, (array, 1), **fields)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"grid": (0, 1, 1)}, 1),
        ({"grid": (1, 0, 1)}, 1),
        ({"grid": (1, 65536, 1)}, 1),
        ({"grid": (1, 65535, 65535)}, 0),
        ({"grid": (1, 1, 65536)}, 1),
        ({"grid": (2**31 - 1, 1, 1)}, 0),
        ({"grid": (2**31, 1, 1)}, 1),
        ({"block": (0, 1, 1)}, 1),
        ({"block": (1024, 1, 1)}, 0),
        ({"block": (1025, 1, 1)}, 1),
        ({"block": (32, 64, 1)}, 1),
        ({"block": (1, 1, 64)}, 0),
        ({"block": (1, 1, 65)}, 1),
        ({"block": (128, 1, 1), "max_threads": 128}, 0),
        ({"block": (129, 1, 1), "max_threads": 128}, 1),
        ({"shared_bytes": 49152}, 0),
        ({"shared_bytes": 49153}, 1),
        ({"shared_bytes": 48128, "shared_bytes_static": 1024}, 0),
        ({"shared_bytes": 48129, "shared_bytes_static": 1024}, 1),
        ({"kern": 0}, 400),
        ({"kern": 12345}, 1),
        ({"kernel_params": 0}, 1),
        ({"extra": 8}, 1),
        ({"extra": 8, "kernel_params": 0}, 801),
        ({"ctx": 12345}, 201),
    ],
)
def test_kernel_nodes(bench: Bench, fields: dict[str, Any], code: int) -> None:
    graph = bench.device.graph_create()
    params = kernel_node(bench, **fields)
    if code:
        error = refused(bench.device.graph_add_kernel_node, code, graph, params)
        assert error.call == "cuGraphAddKernelNode"
    else:
        assert bench.device.graph_add_kernel_node(graph, params)


def test_kernel_nodes_name_kernel_and_context(bench: Bench) -> None:
    graph = bench.device.graph_create()
    bench.device.graph_add_kernel_node(graph, kernel_node(bench, ctx=bench.device.context))
    kernel = bench.load(fill, *KINDS)
    array = ArrayValue(bench.device.mem_alloc(4), (1,), (4,))
    bench.device.graph_add_kernel_node(graph, bench.kernel(kernel, KINDS, (array, 1), func=kernel, kern=0))


def test_a_pointer_to_a_parameter_is_null(bench: Bench) -> None:
    params = kernel_node(bench)
    bench.kept[-2][3] = 0  # the array of pointers
    error = refused(bench.device.graph_add_kernel_node, 1, bench.device.graph_create(), params)
    assert "parameter 3 of 'fill'" in str(error)


def test_more_parameters_than_the_device_takes(bench: Bench) -> None:
    def many(values):
        pass

    for count, code in ((4095, 0), (4096, 1)):
        kinds = (types.UniTuple(types.int64, count),)
        params = bench.kernel(bench.load(many, *kinds), kinds, (tuple(range(count)),))
        graph = bench.device.graph_create()
        if code:
            assert "32764" in str(refused(bench.device.graph_add_kernel_node, code, graph, params))
        else:
            bench.device.graph_add_kernel_node(graph, params)


def test_parameters_are_copied_when_the_node_is_added(bench: Bench) -> None:
    address = bench.device.mem_alloc(16)
    params = bench.kernel(bench.load(fill, *KINDS), KINDS, (ArrayValue(address, (4,), (4,)), 7), block=(4, 1, 1))
    graph, _ = bench.chain((bench.device.graph_add_kernel_node, params))
    struct, leaves = bench.kept[-1], bench.kept[-3]
    for leaf in leaves:
        leaf.view(np.uint8)[:] = 0xFF
    struct.view(np.uint8)[:] = 0
    bench.launch(graph)
    assert bench.download(address, 4, np.int32).tolist() == [7] * 4


def test_dynamic_shared_memory_by_the_kernels_attribute(bench: Bench) -> None:
    device = bench.device
    kernel = bench.load(fill, *KINDS, shared_bytes=1024)
    params = bench.kernel(kernel, KINDS, (ArrayValue(device.mem_alloc(4), (1,), (4,)), 1), shared_bytes=100_000)
    graph = device.graph_create()
    assert "kernel_set_max_shared_bytes" in str(refused(device.graph_add_kernel_node, 1, graph, params))
    most = 232_448 - 1024
    for nbytes in (-1, most + 1):
        assert refused(device.kernel_set_max_shared_bytes, 1, kernel, nbytes).call == "cuKernelSetAttribute"
    device.kernel_set_max_shared_bytes(kernel, most)
    device.graph_add_kernel_node(graph, params)
    device.kernel_set_max_shared_bytes(kernel, 10)
    refused(device.graph_add_kernel_node, 1, graph, params)


def test_libraries(bench: Bench) -> None:
    from dataclasses import replace

    from tests.drivers.emulator.conftest import image_of

    device = bench.device
    image = image_of(fill, *KINDS)
    library = device.library_load_data(image)
    kernel = device.library_get_kernel(library, image)
    assert device.library_get_kernel(library, image) == kernel
    assert device.kernel_get_param_info(kernel) == (*tuple((8 * i, 8) for i in range(7)), (56, 4))
    refused(device.library_get_kernel, 500, library, replace(image, entry="other"))
    refused(device.library_get_kernel, 500, library, replace(image, cubin=b"other code"))
    for target in ((8, 0), (9, 1), (10, 0)):
        error = refused(device.library_load_data, 209, replace(image, target=target))
        assert "compiled for sm_" in str(error)
    Emulator(target="sm_89").library_load_data(replace(image, target=(8, 6)))
    device.library_unload(library)
    refused(device.library_unload, 1, library)
    refused(device.library_get_kernel, 1, library, image)
    refused(device.kernel_get_param_info, 1, kernel)
    refused(device.kernel_set_max_shared_bytes, 1, kernel, 0)


def test_a_launch_after_its_library_is_unloaded(bench: Bench) -> None:
    from tests.drivers.emulator.conftest import image_of

    device = bench.device
    image = image_of(fill, *KINDS)
    library = device.library_load_data(image)
    array = ArrayValue(device.mem_alloc(4), (1,), (4,))
    params = bench.kernel(device.library_get_kernel(library, image), KINDS, (array, 1))
    graph, (node,) = bench.chain((device.graph_add_kernel_node, params))
    device.library_unload(library)
    refused(device.graph_add_kernel_node, 1, graph, params)
    bench.launch(graph)
    error = refused(device.stream_synchronize, 400, bench.stream)
    assert error.node_handle == node
    assert "unloaded" in str(error)


# Host and empty nodes


def test_host_nodes_run_in_a_thread_of_the_driver(bench: Bench) -> None:
    seen: list[Any] = []
    params = bench.host(lambda data: seen.append((data, threading.get_ident())), 42)
    graph, _ = bench.chain(
        (bench.device.graph_add_host_node, params), (lambda graph, _: bench.device.graph_add_empty_node(graph), 0)
    )
    bench.launch(graph)
    bench.device.stream_synchronize(bench.stream)
    assert [data for data, _ in seen] == [42]
    assert seen[0][1] != threading.get_ident()


def test_host_nodes_without_a_function(bench: Bench) -> None:
    params = bench._struct(np.dtype([("function", np.uint64), ("user_data", np.uint64)]))
    refused(bench.device.graph_add_host_node, 1, bench.device.graph_create(), params)


def test_host_nodes_make_no_driver_calls(bench: Bench) -> None:
    codes = []

    def call(data: int | None) -> None:
        for attempt in (bench.device.graph_create, lambda: bench.device.mem_alloc(16), bench.device.stream_create):
            with pytest.raises(DriverError) as caught:
                attempt()
            codes.append(caught.value.code)

    bench.launch(bench.chain((bench.device.graph_add_host_node, bench.host(call)))[0])
    bench.device.stream_synchronize(bench.stream)
    assert codes == [800] * 3


def test_nodes_without_a_struct(bench: Bench) -> None:
    graph = bench.device.graph_create()
    for add_node in (bench.device.graph_add_kernel_node, bench.device.graph_add_host_node):
        assert "NULL" in str(refused(add_node, 1, graph, 0))


# Updates of execs


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"grid": (2, 1, 1)}, 0),
        ({"grid": (0, 1, 1)}, 1),
        ({"block": (2048, 1, 1)}, 1),
        ({"shared_bytes": 50_000}, 1),
        ({"kernel_params": 0}, 1),
        ({"kern": 0}, 400),
    ],
)
def test_updates_of_kernel_nodes(bench: Bench, fields: dict[str, Any], code: int) -> None:
    device = bench.device
    address = bench.upload(np.zeros(8, np.int32))
    array = ArrayValue(address, (8,), (4,))
    graph, (node,) = bench.chain(
        (device.graph_add_kernel_node, bench.kernel(bench.load(add, *KINDS), KINDS, (array, 1)))
    )
    graph_exec = bench.launch(graph)
    new = bench.kernel(bench.load(add, *KINDS), KINDS, (array, 10), **fields)
    updated(bench, device.graph_exec_kernel_node_set_params, graph_exec, node, new, code)
    device.graph_launch(graph_exec, bench.stream)
    wanted = [2, 0] if code else [11, 10]
    assert bench.download(address, 2, np.int32).tolist() == wanted
    # The graph itself is as it was.
    bench.launch(graph)
    assert bench.download(address, 1, np.int32)[0] == wanted[0] + 1


def test_updates_of_host_nodes(bench: Bench) -> None:
    seen: list[str] = []
    graph, (node,) = bench.chain((bench.device.graph_add_host_node, bench.host(lambda data: seen.append("old"))))
    graph_exec = bench.launch(graph)
    new = bench.host(lambda data: seen.append("new"))
    bench.device.graph_exec_host_node_set_params(graph_exec, node, new)
    bench.device.graph_launch(graph_exec, bench.stream)
    bench.device.stream_synchronize(bench.stream)
    assert seen == ["old", "new"]


def test_updates_that_miss_their_node(bench: Bench) -> None:
    device = bench.device
    memset = bench.memset(device.mem_alloc(64), 0, 16)
    graph, (node,) = bench.chain((device.graph_add_memset_node, memset))
    _, (foreign,) = bench.chain((device.graph_add_memset_node, memset))
    graph_exec = bench.launch(graph)
    refused(device.graph_exec_host_node_set_params, 1, graph_exec, node, bench.host(lambda data: None))
    refused(device.graph_exec_memcpy_node_set_params, 1, graph_exec, node, memset)
    refused(device.graph_exec_memset_node_set_params, 1, graph_exec, foreign, memset)
    later = device.graph_add_memset_node(graph, memset)
    refused(device.graph_exec_memset_node_set_params, 1, graph_exec, later, memset)
    refused(device.graph_exec_memset_node_set_params, 1, 12345, node, memset)
    device.graph_exec_memset_node_set_params(graph_exec, node, memset)
    device.graph_destroy(graph)
    refused(device.graph_exec_memset_node_set_params, 1, graph_exec, node, memset)
    refused(device.graph_node_set_enabled, 1, graph_exec, node, False)
    device.graph_launch(graph_exec, bench.stream)


def test_a_disabled_node_is_skipped_and_can_be_updated(bench: Bench) -> None:
    device = bench.device
    address = bench.upload(np.zeros(4, np.int32))
    graph, (first, second) = bench.chain(
        (device.graph_add_memset_node, bench.memset(address, 1, 2)),
        (device.graph_add_memset_node, bench.memset(address + 8, 2, 2)),
    )
    graph_exec = device.graph_instantiate_with_params(graph)
    device.graph_node_set_enabled(graph_exec, first, False)
    device.graph_exec_memset_node_set_params(graph_exec, first, bench.memset(address, 3, 2))
    device.graph_launch(graph_exec, bench.stream)
    assert bench.download(address, 4, np.int32).tolist() == [0, 0, 2, 2]
    device.graph_node_set_enabled(graph_exec, first, True)
    device.graph_launch(graph_exec, bench.stream)
    assert bench.download(address, 4, np.int32).tolist() == [3, 3, 2, 2]
    assert second != first


def test_what_can_be_disabled(bench: Bench, memory: dict[str, int]) -> None:
    device = bench.device
    graph = device.graph_create()
    array = ArrayValue(memory["a"], (1,), (4,))
    can = [
        device.graph_add_kernel_node(graph, bench.kernel(bench.load(fill, *KINDS), KINDS, (array, 1))),
        device.graph_add_memcpy_node(graph, bench.memcpy(memory["a"], memory["b"], 64)),
        device.graph_add_memset_node(graph, bench.memset(memory["a"], 0, 1)),
    ]
    cannot = [device.graph_add_host_node(graph, bench.host(lambda data: None)), device.graph_add_empty_node(graph)]
    graph_exec = device.graph_instantiate_with_params(graph)
    for node in can:
        device.graph_node_set_enabled(graph_exec, node, False)
    for node in cannot:
        refused(device.graph_node_set_enabled, 1, graph_exec, node, False)


@pytest.mark.parametrize("elsewhere", [0x7F00_0000_0000, 2**61])
def test_graphs_over_memory_of_other_devices_can_be_built_and_not_launched(elsewhere: int) -> None:
    """The address of a GPU, and of another emulated device."""
    bench = Bench(Emulator(build_only=True))
    own = bench.device.mem_alloc(64)
    graph, _ = bench.chain(
        (bench.device.graph_add_memcpy_node, bench.memcpy(own, elsewhere, 64)),
        (bench.device.graph_add_memcpy_node, bench.memcpy(elsewhere, own, 64)),
        (bench.device.graph_add_memset_node, bench.memset(elsewhere, 0, 16)),
    )
    with pytest.raises(DriverError, match="only builds graphs") as caught:
        bench.launch(graph)
    assert caught.value.code == 801
    with pytest.raises(MemoryFault):  # its own memory it knows
        bench.device.graph_add_memset_node(graph, bench.memset(own, 0, 17))
    bench.device.mem_free(own)
    with pytest.raises(MemoryFault):
        bench.device.graph_add_memset_node(graph, bench.memset(own, 0, 16))
    other = Bench(Emulator())
    with pytest.raises(DriverError):
        other.chain((other.device.graph_add_memcpy_node, other.memcpy(other.device.mem_alloc(64), elsewhere, 64)))


def test_a_write_beyond_an_array_does_not_reach_its_neighbour(bench: Bench) -> None:
    """On a GPU this would silently change the other array."""
    address = bench.upload(np.zeros(8, np.int32))
    array = ArrayValue(address, (4,), (4,))
    params = bench.kernel(bench.load(fill, *KINDS), KINDS, (array, 1), block=(5, 1, 1))
    bench.launch(bench.chain((bench.device.graph_add_kernel_node, params))[0])
    assert sync_fault(bench).kind == OUTSIDE_ARRAY  # type: ignore[attr-defined]
    assert bench.download(address, 8, np.int32).tolist() == [1] * 4 + [0] * 4
