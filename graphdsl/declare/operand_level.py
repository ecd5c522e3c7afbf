"""The operands of a graph: the methods that declare params, arrays, conditions and events.

They are strict where nothing sensible could be recorded: a name taken twice, a dtype that no device works on. This
module must not know nodes.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from graphdsl.declare.condition import Condition
from graphdsl.declare.event import Event, event_handle, require_own_timing
from graphdsl.declare.expressions import Param
from graphdsl.declare.given import (
    checked_dtype,
    checked_lifetime,
    checked_name,
    checked_shape,
    checked_strides,
)
from graphdsl.declare.interop import device_of, foreign_array
from graphdsl.declare.operands import Buffer, Lifetime, Space
from graphdsl.declare.store import Level, declared_here
from graphdsl.errors import DeclarationError

Operand = Buffer | Param | Condition | Event
OperandType = TypeVar("OperandType", Buffer, Param, Condition, Event)


class OperandLevel(Level):
    """A level with operands; all levels of a graph share them.

    Attributes
    ----------
    operands : dict
        `Buffer`, `Param`, `Condition` and `Event` objects by name, in the order of declaration.
    """

    operands: dict[str, Operand]

    def param(self, name: str, dtype: Any, default: Any | None = None) -> Param:
        """Declare a named scalar that `GraphExec.update` can change.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        dtype : dtype
            NumPy scalar type: bool, integer, float or complex.
        default : number, optional
            The value until an update changes it. Without one, `instantiate` must be given a value.

        Raises
        ------
        DeclarationError
            If the name is taken, the dtype is not a scalar one, or the default does not fit it.

        Examples
        --------
        >>> import numpy as np
        >>> from graphdsl.declare.definition import Definition
        >>> Definition().param("gain", np.float32, default=1.0).dtype
        dtype('float32')
        """
        full = self._operand_name(name)
        made = Param(full, checked_dtype(dtype, full, scalar=True), default, self.root, declared_here())
        return self._keep(made)

    def device_array(
        self,
        name: str,
        shape: int | tuple[int, ...],
        dtype: Any,
        *,
        pitch: int | Literal["auto"] | None = None,
        lifetime: Lifetime = "auto",
    ) -> Buffer:
        """Declare an array in device memory; every exec owns its own.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        shape : int or tuple of int
            Extents in elements; the array is in C order.
        dtype : dtype
            Type of an element; structured dtypes are allowed.
        pitch : int or "auto", optional
            Bytes from the start of a row to that of the next, where a row is all of the last dimension; ``"auto"`` is
            the next multiple of 512 bytes, as `cuMemAllocPitch` gives it. By default rows follow one another without
            a gap.
        lifetime : "auto", "launch" or "persistent"
            How long its contents are there. ``"persistent"``: from launch to launch, and `GraphExec` gives it.
            ``"launch"``: while the graph runs; arrays that are never there at the same time share bytes, and the
            contents are undefined before and after. ``"auto"`` takes for such an array each that is written in the
            graph before it is read and is read after it is last written; see `Plan.memory` for what became of it.

        Examples
        --------
        >>> import numpy as np
        >>> from graphdsl.declare.definition import Definition
        >>> Definition().device_array("image", (480, 640, 3), np.uint8, pitch=4).strides
        (2560, 4, 1)
        >>> Definition().device_array("table", (8, 100), np.float32, pitch="auto").strides
        (512, 4)
        """
        return self._buffer(name, shape, dtype, "device", pitch, lifetime=lifetime)

    def host_array(self, name: str, shape: int | tuple[int, ...], dtype: Any, *, pinned: bool = True) -> Buffer:
        """Declare an array in host memory; every exec owns its own, and `GraphExec` gives it as a NumPy array.

        Parameters
        ----------
        name, shape, dtype
            As for `device_array`.
        pinned : bool
            Page-locked, so that copies run at full speed and without staging; kernels can read it too.
        """
        return self._buffer(name, shape, dtype, "pinned" if pinned else "pageable")

    def _buffer(
        self,
        name: str,
        shape: Any,
        dtype: Any,
        space: Space,
        pitch: Any = None,
        *,
        allocated: bool = False,
        lifetime: Any = "auto",
    ) -> Buffer:
        full = self._operand_name(name)
        extents, made_of = checked_shape(shape, full), checked_dtype(dtype, full)
        strides = checked_strides(extents, made_of, pitch, full)
        made = Buffer(
            full,
            extents,
            made_of,
            space,
            self.root,
            strides=strides,
            allocated=allocated,
            location=declared_here(),
            device=self.device if space == "device" else None,
            lifetime=checked_lifetime(lifetime, full),
        )
        return self._keep(made)

    def external(self, name: str, owner: Any) -> Buffer:
        """Adopt memory that somebody else owns; it is kept alive, and can be re-bound by an update.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        owner : object
            A NumPy array or an object with the buffer protocol (host memory), or an object with
            ``__cuda_array_interface__`` or ``__dlpack__`` (device memory, or pinned memory where DLPack says so). One
            that tells which device has the memory (CuPy, PyTorch, ours) is on that device; of another, `on` says so.

        Raises
        ------
        DeclarationError
            If the memory cannot be found or used.

        Examples
        --------
        >>> import numpy as np
        >>> from graphdsl.declare.definition import Definition
        >>> Definition().external("w", np.zeros(4, np.float32))
        w: float32[4] pageable
        """
        full = self._operand_name(name)
        found = foreign_array(owner, full)
        made = Buffer(
            full,
            found.shape,
            checked_dtype(found.dtype, full),
            found.space,
            self.root,
            strides=found.strides,
            owner=owner,
            keep=found.keep,
            address=found.address,
            readonly=found.readonly,
            location=declared_here(),
            device=self._device_of(owner) if found.space == "device" else None,
        )
        return self._keep(made)

    def _device_of(self, owner: Any) -> int | None:
        told = device_of(owner)
        if told is None:
            return self.device
        self.root.placed = True
        return told

    def condition(self, name: str, default: int | None = None) -> Condition:
        """Declare a value that decides what a conditional node does; kernels set it.

        A kernel takes it as an argument (a uint64) and calls ``graphdsl.device.set_condition(condition, value)``.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        default : int, optional
            The value at the start of each launch, a uint32. Without one it is undefined until a kernel sets it.

        Examples
        --------
        >>> from graphdsl.declare.definition import Definition
        >>> Definition().condition("more", default=1)
        more
        """
        full = self._operand_name(name)
        made = Condition(full, default, self.root, declared_here())
        return self._keep(made)

    def event(self, name: str, owner: Any = None, *, timing: bool = False) -> Event:
        """Declare an event, which nodes record and wait for; every exec has its own, or adopts that of ``owner``.

        Parameters
        ----------
        name : str
            Unique among the operands; a scope prefixes it.
        owner : int or object, optional
            An event of somebody else: its handle, or an event of cuda.core, PyTorch, Numba or CuPy. It is kept alive,
            and an update can put another in its place.
        timing : bool
            Let the time between it and another be asked, as ``exe["stop"].elapsed_since(exe["start"])``. A node that
            records an event costs some microseconds. One of somebody else tells its owner.

        Examples
        --------
        >>> from graphdsl.declare.definition import Definition
        >>> graph = Definition("demo")
        >>> graph.record(graph.event("done"), after=graph.empty()).name
        'record_done'
        """
        full = self._operand_name(name)
        if owner is not None:
            event_handle(owner, f"owner of {full!r}")
            require_own_timing(timing, full)
        made = Event(full, owner, bool(timing), self.root, declared_here(), self.device)
        return self._keep(made)

    # Names

    def _operand_name(self, name: str) -> str:
        full = self._full_prefix() + checked_name(name, "an operand")
        if full in self.operands:
            raise self._operand_taken(full)
        return full

    def _operand_taken(self, full: str) -> DeclarationError:
        return DeclarationError(
            f"graph {self.root.name!r} already has an operand of this name",
            field="name",
            value=repr(full),
            remedy="Choose another name, or make a new Graph.",
            location=self.operands[full].location,
        )

    def _keep(self, operand: OperandType) -> OperandType:
        if self.operands.setdefault(operand.name, operand) is not operand:  # another thread was faster
            raise self._operand_taken(operand.name)
        return operand
