"""C-13: versions, names of functions, and when code is loaded."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver

from tests.conformance.behaviour.answers import SUCCESS, ask, must, short
from tests.conformance.behaviour.gpu import Gpu, driver_has
from tests.conformance.behaviour.graph import Graph
from tests.conformance.behaviour.trials import Recorder, trial

_SINCE = {
    "cuGraphInstantiateWithParams": 12000,
    "cuGraphAddNode": 12020,
    "cuGraphNodeSetParams": 12020,
    "cuGraphExecNodeSetParams": 12020,
    "cuGraphConditionalHandleCreate": 12030,
    "cuFuncGetParamInfo": 12040,
    "cuKernelGetParamInfo": 12040,
    "cuFuncLoad": 12040,
}
"""Functions by the version of CUDA that brought them."""

_NEW_MEANINGS = (
    "cuGraphAddKernelNode",
    "cuGraphKernelNodeGetParams",
    "cuGraphKernelNodeSetParams",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphExecUpdate",
    "cuGraphGetEdges",
    "cuGraphNodeGetDependencies",
    "cuGraphNodeGetDependentNodes",
    "cuGraphAddDependencies",
    "cuGraphRemoveDependencies",
    "cuGraphAddNode",
)
"""Functions whose plain name means, in CUDA 13, what has ``_v2`` before."""


@trial("C-13.1", "Functions are there from a version of CUDA on, and the driver hands none out to older ones.")
def first_versions(t: Recorder, gpu: Gpu) -> None:
    for name, version in _SINCE.items():
        shown = f"{version // 1000}.{version % 1000 // 10}"
        t.expect(f"{name} for CUDA {shown}", bool(driver_has(name, version)), True)
        t.expect(f"{name} for the version before {shown}", bool(driver_has(name, version - 10)), False)


@trial("C-13.1", "Older drivers lack what came later.")
def older_drivers(t: Recorder, gpu: Gpu) -> None:
    t.cannot("it needs an older driver")


@trial(
    "C-13.2",
    "A plain name means the newest struct where the driver is asked for it with CUDA 13, and not as a symbol.",
)
def meanings_of_names(t: Recorder, gpu: Gpu) -> None:
    library = ctypes.CDLL("libcuda.so.1")
    for name in _NEW_MEANINGS:
        new = driver_has(name, 13000)
        exported = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        t.expect(f"{name}: the exported symbol is that of CUDA 13", exported == new, False)
        newest = ctypes.cast(getattr(library, f"{name}_v2"), ctypes.c_void_p).value
        t.note(f"{name}: the exported {name}_v2 is", newest == new)


@trial("C-13.2", "From which version on a plain name means what it means in CUDA 13.")
def versions_of_names(t: Recorder, gpu: Gpu) -> None:
    versions = [major * 1000 + minor * 10 for major in (11, 12, 13) for minor in range(10) if (major, minor) <= (13, 0)]
    for name in _NEW_MEANINGS:
        since = next(version for version in versions if driver_has(name, version) == driver_has(name, 13000))
        t.note(name, f"CUDA {since // 1000}.{since % 1000 // 10}")


@trial("C-13.3", "Code is loaded late: at the first launch, unless it is asked for before.")
def lazy_loading(t: Recorder, gpu: Gpu) -> None:
    memory, graph = gpu.memory(), Graph(gpu)

    def state(name: str) -> str:
        return short(must(driver.cuFuncIsLoaded, gpu.function(name)))

    t.note("state once the function is known", state("put"))
    graph.kernel("put", memory, 1).must()
    t.note("state once it is in a node", state("put"))
    ready = graph.instantiate()
    t.note("state once that is instantiated", state("put"))
    must(driver.cuGraphUpload, ready.must(), gpu.stream)
    gpu.synchronise().must()
    t.note("state once that is uploaded", state("put"))
    ready.launch().must()
    t.note("state once that is launched", state("put"))
    t.expect("cuFuncLoad of another", ask(driver.cuFuncLoad, gpu.function("append")), SUCCESS)
    t.expect("its state", state("append"), "LOADED")
