"""Graphs and execs as the trials build them: every method is one call of the driver, and gives its answer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuda.bindings import driver

from tests.conformance.behaviour import params
from tests.conformance.behaviour.answers import SUCCESS, Answer, ask, handle, must, short
from tests.conformance.behaviour.gpu import Gpu, driver_has

FULL, PROGRAMMATIC, LAUNCH_ORDER = (0, 0, 0), (1, 0, 1), (2, 0, 0)
"""Edges: port that they leave, port that they enter, type."""
IF, WHILE, SWITCH = 0, 1, 2


class Graph:
    """A graph of the driver.

    Parameters
    ----------
    gpu : Gpu
        Where its nodes run.
    raw : object, optional
        A handle; a new graph is made if it is left out.
    """

    def __init__(self, gpu: Gpu, raw: Any = None) -> None:
        self.gpu = gpu
        self.raw = must(driver.cuGraphCreate, 0) if raw is None else raw

    def _add(self, function: Callable[..., Any], after: Sequence[Any], *rest: Any) -> Answer:
        return ask(function, self.raw, [handle(node) for node in after], len(after), *rest)

    def kernel(self, name: str, *values: Any, after: Sequence[Any] = (), **launch: Any) -> Answer:
        made = self.gpu.launch_params(name, *values, **launch)
        return self._add(driver.cuGraphAddKernelNode, after, made)

    def kernel_with(self, made: Any, after: Sequence[Any] = ()) -> Answer:
        return self._add(driver.cuGraphAddKernelNode, after, made)

    def memcpy(self, *args: Any, after: Sequence[Any] = (), **fields: Any) -> Answer:
        return self._add(driver.cuGraphAddMemcpyNode, after, params.copy(*args, **fields), self.gpu.context)

    def memset(self, *args: Any, after: Sequence[Any] = (), **fields: Any) -> Answer:
        return self._add(driver.cuGraphAddMemsetNode, after, params.fill(*args, **fields), self.gpu.context)

    def host(self, function: Callable[[], Any], after: Sequence[Any] = ()) -> Answer:
        return self._add(driver.cuGraphAddHostNode, after, params.callback(self.gpu, function))

    def empty(self, after: Sequence[Any] = ()) -> Answer:
        return self._add(driver.cuGraphAddEmptyNode, after)

    def record(self, event: Any, after: Sequence[Any] = ()) -> Answer:
        return self._add(driver.cuGraphAddEventRecordNode, after, event)

    def wait(self, event: Any, after: Sequence[Any] = ()) -> Answer:
        return self._add(driver.cuGraphAddEventWaitNode, after, event)

    def batch(self, *operations: params.Operation, after: Sequence[Any] = ()) -> Answer:
        return self._add(driver.cuGraphAddBatchMemOpNode, after, params.batch(self.gpu, operations))

    def free(self, address: int, after: Sequence[Any] = ()) -> Answer:
        return self._add(driver.cuGraphAddMemFreeNode, after, address)

    def alloc(self, nbytes: int, after: Sequence[Any] = (), **fields: Any) -> Alloc:
        made = params.allocation(self.gpu, nbytes, **fields)
        answer = self._add(driver.cuGraphAddMemAllocNode, after, made)
        return Alloc(answer.call, answer.code, answer.value, int(made.dptr))

    def child(self, graph: Graph, after: Sequence[Any] = (), *, move: bool = False) -> Answer:
        if not move:
            return self._add(driver.cuGraphAddChildGraphNode, after, graph.raw)
        return self.generic(params.moved(graph.raw), after)

    def generic(self, made: Any, after: Sequence[Any] = ()) -> Answer:
        """``cuGraphAddNode``."""
        nodes = [handle(node) for node in after]
        return ask(driver.cuGraphAddNode, self.raw, nodes or None, None, len(nodes), made)

    def handle(self, default: int = 0, *, assign: bool = True) -> Any:
        """A conditional handle."""
        flags = driver.CU_GRAPH_COND_ASSIGN_DEFAULT if assign else 0
        return must(driver.cuGraphConditionalHandleCreate, self.raw, self.gpu.context, default, flags)

    def conditional(self, condition: Any, kind: int = IF, size: int = 1, after: Sequence[Any] = ()) -> Conditional:
        made = params.conditional(self.gpu, condition, kind, size)
        answer = self.generic(made, after)
        bodies = made.conditional.phGraph_out if answer.code == SUCCESS else []
        graphs = [Graph(self.gpu, driver.CUgraph(int(body))) for body in bodies]
        return Conditional(answer.call, answer.code, answer.value, graphs)

    def edge(self, source: Any, target: Any, data: tuple[int, int, int] | None = None) -> Answer:
        return self.edges([(source, target)], None if data is None else [data])

    def edges(self, pairs: Iterable[tuple[Any, Any]], data: list[tuple[int, int, int]] | None = None) -> Answer:
        """Several edges with one call."""
        return self._edges(driver.cuGraphAddDependencies, pairs, data)

    def remove_edge(self, source: Any, target: Any, data: tuple[int, int, int] | None = None) -> Answer:
        return self._edges(driver.cuGraphRemoveDependencies, [(source, target)], None if data is None else [data])

    def _edges(self, function: Callable[..., Any], pairs: Iterable[tuple[Any, Any]], data: Any) -> Answer:
        both = [(handle(source), handle(target)) for source, target in pairs]
        made = None if data is None else [params.edge(*ports) for ports in data]
        sources, targets = [source for source, _ in both], [target for _, target in both]
        return ask(function, self.raw, sources, targets, made, len(both))

    def nodes(self) -> list[Any]:
        _, count = must(driver.cuGraphGetNodes, self.raw, 0)
        found = must(driver.cuGraphGetNodes, self.raw, count)[0] if count else []
        return [driver.CUgraphNode(int(node)) for node in found]

    def edge_count(self) -> int:
        return int(must(driver.cuGraphGetEdges, self.raw, 0)[-1])

    def clone(self) -> Answer:
        return ask(driver.cuGraphClone, self.raw)

    def destroy(self) -> Answer:
        return ask(driver.cuGraphDestroy, self.raw)

    def instantiate(self, flags: int = 0) -> Exec:
        return Exec(self, flags)

    def place(self, node: int) -> str:
        """Which of the nodes a handle is, for answers that blame one."""
        for index, found in enumerate(self.nodes()):
            if int(found) == node:
                return f"node {index} ({kind_of(found)})"
        return f"a node inside ({kind_of(driver.CUgraphNode(node))})"


@dataclass
class Alloc(Answer):
    """The answer to an allocation node, and the address that it gave."""

    address: int = 0


@dataclass
class Conditional(Answer):
    """The answer to a conditional node, and its bodies."""

    bodies: list[Graph] = field(default_factory=list)


class Exec(Answer):
    """The answer to instantiating a graph, with the result and the blamed node in its code; and the exec."""

    def __init__(self, graph: Graph, flags: int = 0) -> None:
        made = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
        made.flags = flags
        made.hUploadStream = graph.gpu.stream
        answer = ask(driver.cuGraphInstantiateWithParams, graph.raw, made)
        code = answer.code
        if code != SUCCESS:
            code += f", {short(made.result_out)}"
            blamed = int(made.hErrNode_out)
            code += f", blames {graph.place(blamed)}" if blamed else ", blames no node"
        super().__init__(answer.call, code, answer.value)
        self.gpu = graph.gpu

    def launch(self, stream: Any = None) -> Answer:
        """Launch and synchronise; the code says which of both failed."""
        stream = self.gpu.stream if stream is None else stream
        launched = ask(driver.cuGraphLaunch, self.must(), stream)
        if launched.code != SUCCESS:
            return Answer(launched.call, f"{launched.code} at launch")
        ended = ask(driver.cuStreamSynchronize, stream)
        return ended if ended.code == SUCCESS else Answer(ended.call, f"{ended.code} at synchronise")

    def start(self, stream: Any = None) -> Answer:
        """Launch and do not wait."""
        return ask(driver.cuGraphLaunch, self.must(), self.gpu.stream if stream is None else stream)

    def _set(self, function: Callable[..., Any], node: Any, *made: Any) -> Answer:
        return ask(function, self.must(), handle(node), *made)

    def set_kernel(self, node: Any, name: str, *values: Any, **launch: Any) -> Answer:
        return self.set_kernel_with(node, self.gpu.launch_params(name, *values, **launch))

    def set_kernel_with(self, node: Any, made: Any) -> Answer:
        return self._set(driver.cuGraphExecKernelNodeSetParams, node, made)

    def set_memcpy(self, node: Any, *args: Any, **fields: Any) -> Answer:
        made = params.copy(*args, **fields)
        return self._set(driver.cuGraphExecMemcpyNodeSetParams, node, made, self.gpu.context)

    def set_memset(self, node: Any, *args: Any, **fields: Any) -> Answer:
        made = params.fill(*args, **fields)
        return self._set(driver.cuGraphExecMemsetNodeSetParams, node, made, self.gpu.context)

    def set_host(self, node: Any, function: Callable[[], Any]) -> Answer:
        return self._set(driver.cuGraphExecHostNodeSetParams, node, params.callback(self.gpu, function))

    def set_record(self, node: Any, event: Any) -> Answer:
        return self._set(driver.cuGraphExecEventRecordNodeSetEvent, node, event)

    def set_wait(self, node: Any, event: Any) -> Answer:
        return self._set(driver.cuGraphExecEventWaitNodeSetEvent, node, event)

    def set_batch(self, node: Any, *operations: params.Operation) -> Answer:
        return self._set(driver.cuGraphExecBatchMemOpNodeSetParams, node, params.batch(self.gpu, operations))

    def set_child(self, node: Any, graph: Graph) -> Answer:
        return self._set(driver.cuGraphExecChildGraphNodeSetParams, node, graph.raw)

    def set_generic(self, node: Any, made: Any) -> Answer:
        """``cuGraphExecNodeSetParams``."""
        return self._set(driver.cuGraphExecNodeSetParams, node, made)

    def enable(self, node: Any, enabled: bool) -> Answer:
        return self._set(driver.cuGraphNodeSetEnabled, node, int(enabled))

    def destroy(self) -> Answer:
        return ask(driver.cuGraphExecDestroy, self.must())

    def update(self, graph: Graph) -> Answer:
        """Update all of it from a graph; the code says what differs, and where."""
        # Through ctypes, because cuda.bindings keeps what the driver says about a failure to itself.
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(driver_has("cuGraphExecUpdate"))
        told = _UpdateResult()
        code = function(int(self.must()), int(graph.raw), ctypes.addressof(told))
        text = short(driver.CUresult(code))
        if text == "GRAPH_EXEC_UPDATE_FAILURE":
            text = short(driver.CUgraphExecUpdateResult(told.result))
        if text != SUCCESS:
            text += f", blames {graph.place(told.node)}" if told.node else ", blames no node"
            text += f" because of {graph.place(told.source)}" if told.source else ""
        return Answer("cuGraphExecUpdate", text)


class _UpdateResult(ctypes.Structure):
    """``CUgraphExecUpdateResultInfo``."""

    _fields_ = (("result", ctypes.c_int), ("node", ctypes.c_void_p), ("source", ctypes.c_void_p))


def kind_of(node: Any) -> str:
    """The type of a node, or the code that asking for it gave."""
    answer = ask(driver.cuGraphNodeGetType, handle(node))
    return short(answer.value) if answer.code == SUCCESS else answer.code


def set_attribute(node: Any, attribute: int, **fields: Any) -> Answer:
    """Set an attribute of a kernel node; see `params.attribute`."""
    return ask(driver.cuGraphKernelNodeSetAttribute, handle(node), *params.attribute(attribute, **fields))


def get_attribute(node: Any, attribute: int) -> Answer:
    return ask(driver.cuGraphKernelNodeGetAttribute, handle(node), driver.CUkernelNodeAttrID(attribute))


def child_of(node: Any, gpu: Gpu) -> Graph:
    """The graph inside a child node."""
    return Graph(gpu, must(driver.cuGraphChildGraphNodeGetGraph, handle(node)))
