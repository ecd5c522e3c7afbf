"""An instantiated graph: launched, read and written by name, updated by name.

`instantiate` is the way to one: check, plan, compile, load, allocate, pack, emit. Whatever fails on the way, what was
made before it is taken back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NoReturn

from graphdsl.check import check
from graphdsl.compile.numba import compile_kernel
from graphdsl.compile.signature import argument_types
from graphdsl.declare.definition import Definition, unknown_name
from graphdsl.declare.expressions import convert_scalar, scalar_converter, value_of
from graphdsl.declare.limits import Limits
from graphdsl.declare.nodes import KernelNode, Node, named_operands
from graphdsl.declare.operands import Buffer
from graphdsl.drivers.base import Driver, Handle
from graphdsl.errors import CallbackError, DriverError, ExecUnusableError, GraphdslError, UpdateError
from graphdsl.plan import Plan, plan
from graphdsl.run.binding import Memory
from graphdsl.run.callbacks import HostCalls
from graphdsl.run.calls import Call, CallLog
from graphdsl.run.device_array import DeviceArray
from graphdsl.run.emit import emit
from graphdsl.run.host_thread import in_host_function, outside_host_functions
from graphdsl.run.modules import LoadedKernel, load
from graphdsl.run.node_exec import NodeExec
from graphdsl.run.packing import Packing
from graphdsl.run.retire import Retired
from graphdsl.run.stream import stream_handle
from graphdsl.run.templates import Shared
from graphdsl.run.update import Release, Updater


def instantiate(definition: Definition, device: Driver, values: Mapping[str, Any] | None = None) -> GraphExec:
    """Make an exec of a definition on a device.

    Parameters
    ----------
    definition : Definition
        What to build; later changes of it do not change the exec.
    device : Driver
        Where it runs.
    values : dict of str to number, optional
        Values of params by name, instead of their defaults.

    Raises
    ------
    CheckError
        If the definition has errors.
    DriverError
        If the driver refused it; nothing is left behind.
    """
    if not isinstance(getattr(device, "limits", None), Limits):
        raise GraphdslError(
            "a graph is instantiated on a device",
            field="device",
            value=f"{device!r} of type {type(device).__name__}",
            remedy="Pass graphdsl.cuda(0) or graphdsl.emulator(), or nothing for the default.",
        )
    check(definition, target=device.limits, values=values).raise_for_errors()
    return GraphExec(plan(definition), device, values or {})


class GraphExec:
    """A graph on a device, ready to launch. Made by `Graph.instantiate`.

    Use it from one thread at a time. As a context manager it is closed at the end.

    Attributes
    ----------
    name : str
        Name of the graph.
    device : Driver
        Where it runs.
    """

    def __init__(self, made: Plan, device: Driver, values: Mapping[str, Any]) -> None:
        self.name = made.name
        self.device = device
        self._plan = made
        self._index = {node.name: i for i, node in enumerate(made.nodes)}
        self._converters = {
            name: scalar_converter(param.dtype, field=name, error=UpdateError) for name, param in made.params.items()
        }
        self._pending: dict[Handle, Any] = {}
        self._last_stream: Handle | None = None
        self._unusable: str | None = None
        self._log = log = CallLog()
        with ExitStack() as resources:
            self._build(values, resources, log)
            self._finalizer = weakref.finalize(self, _close, device, self._pending, resources.pop_all())

    def _build(self, values: Mapping[str, Any], resources: ExitStack, log: CallLog) -> None:
        # What is made first is released last: the exec and its graph go before the memory and the kernels they use.
        device, made = self.device, self._plan
        self._stream = device.stream_create()
        log.add("cuStreamCreate")
        resources.callback(device.stream_destroy, self._stream)
        kernels = _load(made.nodes, device, log)
        resources.callback(kernels.clear)
        current = _param_values(made, values)
        self._memory = Memory(made, device, log, current)
        resources.callback(self._memory.release)
        self._hosts = HostCalls(self._memory)
        resources.callback(self._hosts.close)
        self._retired = Retired(device)
        resources.callback(self._retired.close)
        self._packing = Packing(made.nodes, kernels, device.context, Shared(current))
        self._updater = Updater(made.nodes, current, self._packing, device, self._hosts)
        self._updater.bind_hosts()
        _allow_shared_bytes(made.nodes, kernels, current, log)
        emitted = emit(made, self._packing, device, self._stream, resources, log)
        self._graph_exec = emitted.graph_exec
        self._updater.sender.attach(emitted.graph_exec, emitted.handles)
        self._launch_own: Callable[[], int] = device.graph_launcher(emitted.graph_exec, self._stream)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The driver calls that built the exec, in order; the same on every driver."""
        return self._log.calls()

    # Running

    def launch(self, stream: Any = None) -> None:
        """Launch the graph; returns before it has run.

        A launch waits for the one before of the same exec, on whatever stream.

        Parameters
        ----------
        stream : int or object, optional
            A stream handle, or an object with ``__cuda_stream__``; the exec's own stream by default. It must live
            until the exec is synchronised.

        Raises
        ------
        ExecUnusableError
            If the exec is closed, or an update left it undefined.
        DriverError
            If the driver refuses.
        """
        if stream is None:
            handle = self._stream
            code = self._launch_own()  # says so itself where the exec is unusable
            if code:
                raise self.device.launch_failure(code)
        else:
            self._require_usable()
            handle = stream_handle(stream)
            self.device.graph_launch(self._graph_exec, handle)
        if self._last_stream is not handle:
            self._pending[handle] = stream
            self._last_stream = handle

    def synchronize(self) -> None:
        """Wait for the launches so far.

        Raises
        ------
        DriverError
            If a launch failed; a `MemoryFault` of the emulator names the node.
        CallbackError
            If a host node raised; further ones wait for the next call.
        """
        self._require_usable()
        with self._named_faults():
            self._drain()
        if self._hosts.failures:
            raise self._hosts.failures.popleft()

    def _drain(self) -> None:
        while self._pending:
            handle, _ = self._pending.popitem()
            self.device.stream_synchronize(handle)
        self._last_stream = None
        self._retired.drain()

    @contextmanager
    def _named_faults(self) -> Iterator[None]:
        """Gives the emulator's faults, which know a handle only, the name of their node."""
        try:
            yield
        except DriverError as problem:
            node = self._updater.sender.node_of(problem.node_handle)
            if node is None:
                raise
            raise problem.named(node.name, node.location) from problem.__cause__

    # Reading and writing

    def __getitem__(self, name: str) -> Any:
        """The memory or value of an operand.

        Parameters
        ----------
        name : str
            Name of an operand.

        Returns
        -------
        numpy.ndarray, DeviceArray, object or number
            A NumPy array over host memory of the exec, a `DeviceArray` over its device memory, the owner of an
            external operand, or the value of a param. Host memory is written and read while no launch is in flight.
        """
        if not isinstance(name, str):
            raise unknown_name(name, [*self._plan.buffers, *self._plan.params], "operand", UpdateError)
        if name in self._plan.params:
            return self._updater.values.get(name)
        buffer = self._plan.buffers.get(name)
        if buffer is None:
            raise unknown_name(name, [*self._plan.buffers, *self._plan.params], "operand", UpdateError)
        if buffer.external:
            return self._memory.owners[name]
        self._require_usable()
        if buffer.space != "device":
            return self._memory.host_array(buffer, self._updater.values)
        return self._device_array(buffer)

    def _device_array(self, buffer: Buffer) -> DeviceArray:
        shape: Any = buffer.shape
        return DeviceArray(
            self.device,
            self._updater.values[buffer.name],
            shape,
            buffer.strides,
            buffer.dtype,
            owner=self._memory.kept[buffer.name],
            synchronize=self._settle,
        )

    def _settle(self) -> Handle:
        """Wait for the launches so far; gives the stream for a copy that follows."""
        self.synchronize()
        return self._stream

    # Updating

    def update(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Change params and re-bind external memory for the launches that follow, by name; all of it, or nothing.

        Parameters
        ----------
        values : dict, optional
            Values by name; for names that are no Python identifiers, such as ``"layer0/weights"``.
        **named
            Numbers for params; owners of memory for external operands. Only nodes whose fields change reach the
            driver.

        Raises
        ------
        UpdateError
            If a name is unknown or a value is not allowed. Nothing has changed.
        DriverError
            If the driver refuses. The values before are in force.
        ExecUnusableError
            If the driver refused and the values before could not be restored.
        """
        if self._unusable is not None:
            self._require_usable()
        if values is None and len(named) == 1 and self._updated_directly(named):
            return
        given = named if values is None else {**_mapping(values), **named}
        converters = self._converters
        changes, adopted = {}, {}
        for name, value in given.items():
            convert = converters.get(name)
            if convert is not None:
                changes[name] = convert(value)
            elif name in self._plan.buffers:
                adopted[name] = value, self._memory.adopt(name, value)
                changes[name] = adopted[name][1].address
            else:
                raise unknown_name(name, [*self._plan.params, *self._plan.buffers], "param or buffer", UpdateError)
        # Host nodes are bound to memory while the update is applied, so the new owners must be there by then.
        with self._noting_loss(), self._memory.rebound(adopted) as replaced:
            releases = self._updater.update(changes)
        releases += map(_keeping, replaced)
        if releases:
            self._retired.add(releases, self._last_stream)

    def _updated_directly(self, named: dict[str, Any]) -> bool:
        """Set one param the short way, where it is open."""
        ((name, value),) = named.items()
        try:  # the hot path: a context manager would cost as much as the rest
            return self._updater.update_param(name, value)
        except ExecUnusableError as problem:
            self._lose(problem.rule)
            raise

    def node(self, name: str) -> NodeExec:
        """One node of the exec, to update, enable or disable it.

        Raises
        ------
        UpdateError
            If there is no node of that name.
        """
        try:
            return NodeExec(self, self._index[name])
        except (KeyError, TypeError):
            raise unknown_name(name, self._index, "node", UpdateError) from None

    def _update_node(self, index: int, node: Node) -> None:
        self._require_usable()
        self._require_own(node)
        with self._noting_loss():
            releases = self._updater.update_node(index, node)
        if releases:
            self._retired.add(releases, self._last_stream)

    def _update_numbers(self, index: int, given: Mapping[str, Any]) -> bool:
        self._require_usable()
        try:
            return self._updater.update_numbers(index, given)
        except ExecUnusableError as problem:
            self._lose(problem.rule)
            raise

    def _require_own(self, node: Node) -> None:
        """Refuse operands that the exec has no memory or value for."""
        for name, operand in named_operands(node):
            if self._plan.buffers.get(name) is not operand and self._plan.params.get(name) is not operand:
                raise UpdateError(
                    "the exec has no operand of this name, or another one",
                    node=node.name,
                    field="operand",
                    value=name,
                    remedy="Use operands that the graph had when it was instantiated.",
                    location=node.location,
                )

    @contextmanager
    def _noting_loss(self) -> Iterator[None]:
        """Remembers that an update left the exec undefined."""
        try:
            yield
        except ExecUnusableError as problem:
            self._lose(problem.rule)
            raise

    # Ending

    def close(self) -> None:
        """Wait for the launches so far and release everything; closing twice is allowed.

        Raises
        ------
        DriverError
            If a launch failed that nobody has waited for.
        CallbackError
            If a host node raised and nobody has been told.
        """
        if in_host_function():
            raise GraphdslError(
                "a host function may make no driver calls, and closing an exec does",
                field="exec",
                value=self.name,
                remedy="Close it after the launch.",
            )
        self._lose(self._unusable or "the exec is closed")
        with self._named_faults():
            self._finalizer()
        if self._hosts.failures:
            raise self._hosts.failures.popleft()

    def _lose(self, why: str) -> None:
        """From now on the exec refuses to be used; the shortest way to a launch asks nothing, so it is replaced."""
        self._unusable = why
        self._launch_own = partial(_refuse, why, self.name)

    def _require_usable(self) -> None:
        if self._unusable is not None:
            _refuse(self._unusable, self.name)

    def __enter__(self) -> GraphExec:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A fault on a GPU loses the context, and closing then fails too: the fault is what the user must see.
        with suppress(DriverError, CallbackError) if kind else nullcontext():
            self.close()

    def __repr__(self) -> str:
        return f"<GraphExec {self.name!r} on {self.device.name}: {len(self._plan.nodes)} nodes>"


def _refuse(why: str, name: str) -> NoReturn:
    raise ExecUnusableError(why, field="exec", value=name, remedy="Instantiate the graph again.")


def _close(device: Driver, pending: dict[Handle, Any], resources: ExitStack) -> None:
    """Release everything, even if the launches in flight failed."""

    def release() -> None:
        with resources:
            for handle in pending:
                device.stream_synchronize(handle)

    outside_host_functions(release)


def _mapping(values: Any) -> Mapping[str, Any]:
    if isinstance(values, Mapping):
        return values
    raise UpdateError(
        "values are a dict by the names of params and buffers",
        field="values",
        value=f"{values!r} of type {type(values).__name__}",
        remedy="Pass update(gain=3.0), or update({'layer0/gain': 3.0}).",
    )


def _load(nodes: Sequence[Node], device: Driver, log: CallLog) -> list[LoadedKernel | None]:
    """The kernel of each node on the device; None for a node of another kind."""
    target = device.limits.compute_capability
    alike: dict[Any, LoadedKernel] = {}  # operands are known by identity: the nodes keep them alive
    typed: dict[Any, LoadedKernel] = {}

    def loaded(node: KernelNode) -> LoadedKernel:
        key = (node.kernel, id(node.signature), *map(id, node.args))
        found = alike.get(key)
        if found is None:
            details: dict[str, Any] = {"node": node.name, "location": node.location}
            types = argument_types(node.kernel, node.args, signature=node.signature, **details)
            found = typed.get((node.kernel, types))
            if found is None:
                image = compile_kernel(node.kernel, types, target, **details)
                found = typed[node.kernel, types] = load(image, device, log)
            alike[key] = found
        return found

    return [loaded(node) if isinstance(node, KernelNode) else None for node in nodes]


def _param_values(made: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, param in made.params.items():
        value = values.get(name, param.default)
        if value is not None:  # one that no node uses may stay unset
            found[name] = convert_scalar(value, param.dtype, field=name, error=UpdateError)
    return found


def _allow_shared_bytes(
    nodes: Sequence[Node], kernels: Sequence[LoadedKernel | None], values: Mapping[str, Any], log: CallLog
) -> None:
    """Let each kernel have the most dynamic shared memory that one of its nodes asks for."""
    most: dict[LoadedKernel, int] = {}
    for node, kernel in zip(nodes, kernels, strict=True):
        if kernel is not None and isinstance(node, KernelNode):
            most[kernel] = max(most.get(kernel, 0), value_of(node.shared_bytes, values))
    for kernel, nbytes in most.items():
        if kernel.allow_shared_bytes(nbytes):
            log.add("cuKernelSetAttribute", kernel.image.name, MAX_DYNAMIC_SHARED_SIZE_BYTES=nbytes)


def _keeping(owner: Any) -> Release:
    """Does nothing when called: until then it keeps ``owner`` alive."""

    def release(kept: Any = owner) -> None:
        del kept

    return release
