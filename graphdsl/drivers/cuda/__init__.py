"""The seam over a CUDA device: `cuda.bindings` for driver calls, `cuda.core` for devices and views of memory.

Imported only when a GPU is asked for. This package must not decide anything about graphs: it calls, and turns result
codes into errors.
"""

from graphdsl.drivers.cuda.calling import driver_version as driver_version
from graphdsl.drivers.cuda.calling import unavailable as unavailable
from graphdsl.drivers.cuda.device import CudaDevice as CudaDevice
from graphdsl.drivers.cuda.device import cuda_device as cuda_device
from graphdsl.drivers.cuda.device import devices as devices
