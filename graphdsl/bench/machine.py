"""What a benchmark ran on: GPU, driver, processor, versions, date."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import graphdsl as gd

PACKAGES = (
    "cuda-bindings",
    "cuda-core",
    "cupy-cuda13x",
    "networkx",
    "numba",
    "numba-cuda",
    "numpy",
    "torch",
    "warp-lang",
)


def facts() -> dict[str, Any]:
    """Say what this machine is; a fact that it does not tell is left out."""
    found = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "graphdsl": gd.__version__,
        **_gpu(),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": packages(),
    }
    return {name: fact for name, fact in found.items() if fact}


def _gpu() -> dict[str, str | None]:
    from graphdsl.drivers.cuda import devices, driver_version, unavailable

    if unavailable():
        return {}
    return {"gpu": devices()[0], "driver": _driver_release(), "cuda": ".".join(map(str, driver_version()))}


def _driver_release() -> str | None:
    """Release of the kernel-mode driver, such as ``"580.159.04"``."""
    try:
        from cuda.core import system

        return ".".join(map(str, system.get_kernel_mode_driver_version()))
    except Exception:  # NVML may be missing or forbidden where CUDA works, as in some containers
        return None


def processor() -> str:
    """Name of the processor, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def packages() -> dict[str, str]:
    """Versions of the packages that times may depend on, where they are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
