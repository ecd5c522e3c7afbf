"""Calls of the CUDA driver that instantiate graphs and launch them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from cuda.bindings import driver

from graphdsl.drivers.base import Address, Handle
from graphdsl.drivers.cuda import loops
from graphdsl.drivers.cuda.calling import error_of, invoke
from graphdsl.drivers.cuda.context import Context
from graphdsl.drivers.results import InstantiateError
from graphdsl.errors import DriverError


class Running(Context):
    """Execs and their launches."""

    def graph_instantiate_with_params(self, graph: Handle, flags: int = 0) -> Handle:
        params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
        params.flags = flags
        with self._current():
            result, graph_exec = driver.cuGraphInstantiateWithParams(graph, params)
        if result:
            raise InstantiateError(int(result), params.result_out.name, int(params.hErrNode_out))
        return int(graph_exec)

    def graph_upload(self, graph_exec: Handle, stream: Handle) -> None:
        invoke(driver.cuGraphUpload, graph_exec, stream)

    def graph_launch(self, graph_exec: Handle, stream: Handle) -> None:
        invoke(driver.cuGraphLaunch, graph_exec, stream)

    def graph_launcher(self, graph_exec: Handle, stream: Handle) -> Callable[[], int]:
        compiled = loops.compiled()
        if compiled is None:
            return super().graph_launcher(graph_exec, stream)
        return functools.partial(compiled.call_two, compiled.launch, graph_exec, stream)

    def launch_failure(self, code: int) -> DriverError:
        return error_of("cuGraphLaunch", code)

    def graph_exec_let_share(self, graph_exec: Handle, shared: Sequence[tuple[Address, int, Sequence[Handle]]]) -> None:
        """See `Driver.graph_exec_let_share`."""

    def graph_exec_let_enter(self, graph_exec: Handle, address: Address, nbytes: int, tenant: int) -> None:
        """See `Driver.graph_exec_let_enter`."""

    def graph_exec_destroy(self, graph_exec: Handle) -> None:
        invoke(driver.cuGraphExecDestroy, graph_exec)
