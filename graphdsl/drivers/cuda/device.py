"""The CUDA devices of this computer: the groups of calls joined, one object for each device."""

from __future__ import annotations

import threading

from cuda.bindings import driver
from cuda.core import Device

from graphdsl.drivers.base import Handle, require_device
from graphdsl.drivers.cuda.building import Building
from graphdsl.drivers.cuda.calling import error_of, invoke, unavailable
from graphdsl.drivers.cuda.kernels import Kernels
from graphdsl.drivers.cuda.looking import Looking
from graphdsl.drivers.cuda.memory import Memory
from graphdsl.drivers.cuda.running import Running
from graphdsl.drivers.cuda.streams import Streams
from graphdsl.drivers.cuda.updating import Updating
from graphdsl.errors import GraphdslError

_PEER_ENABLED = driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED


def devices() -> list[str]:
    """Names of the GPUs that the driver shows, by ordinal; empty where there is none."""
    if unavailable():
        return []
    return [Device(ordinal).name for ordinal in range(invoke(driver.cuDeviceGetCount))]


def cuda_device(ordinal: int = 0) -> CudaDevice:
    """The CUDA device of that ordinal; always the same object.

    Parameters
    ----------
    ordinal : int
        Number of the device, as ``nvidia-smi`` and ``CUDA_VISIBLE_DEVICES`` leave it.

    Raises
    ------
    GraphdslError
        If there is no driver or no such device; the remedy names the emulator.
    """
    if isinstance(ordinal, bool) or not isinstance(ordinal, int):
        raise GraphdslError(
            "a CUDA device is given by its number",
            field="device",
            value=f"cuda({ordinal!r})",
            remedy="Pass 0 for the first.",
        )
    reason = unavailable()
    count = 0 if reason else invoke(driver.cuDeviceGetCount)
    if not 0 <= ordinal < count:
        raise GraphdslError(
            reason or f"the driver shows {count} device{'s' if count != 1 else ''}, numbered from 0",
            field="device",
            value=f"cuda({ordinal})",
            remedy="Use graphdsl.emulator(), or run `graphdsl doctor` to see what is missing.",
        )
    with _making:  # functools.cache would let two threads make two
        found = _devices.get(ordinal)
        if found is None:
            found = _devices[ordinal] = CudaDevice(ordinal)
        return found


_devices: dict[int, CudaDevice] = {}
_making = threading.RLock()


class CudaDevice(Kernels, Memory, Streams, Building, Looking, Running, Updating):
    """One CUDA device with its primary context; see `graphdsl.drivers.base.Driver` for the methods."""

    emulated = False
    survives_fork = False

    def __repr__(self) -> str:
        return f"<{self.name}>"

    # Other devices

    @property
    def device_count(self) -> int:
        return int(invoke(driver.cuDeviceGetCount))

    def sibling(self, ordinal: int) -> CudaDevice:
        require_device(self, ordinal)
        return cuda_device(ordinal)

    def device_can_access_peer(self, peer: int) -> bool:
        return bool(invoke(driver.cuDeviceCanAccessPeer, self.ordinal, peer))

    def ctx_enable_peer_access(self, context: Handle) -> None:
        with self._current():
            (result,) = driver.cuCtxEnablePeerAccess(context, 0)
        if result and result != _PEER_ENABLED:
            raise error_of("cuCtxEnablePeerAccess", int(result))
