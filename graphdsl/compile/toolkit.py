"""The libraries of the CUDA toolkit that compile and link: which version is in use, and where it lies.

For reports only: this module must not compile, and what compiles finds the libraries by itself.
"""

from __future__ import annotations

from cuda import pathfinder
from cuda.bindings import nvjitlink, nvrtc, nvvm


def library(name: str) -> tuple[str, str]:
    """Version and path of a library.

    Parameters
    ----------
    name : str
        ``"nvvm"``, which makes PTX; ``"nvJitLink"``, which makes machine code; or ``"nvrtc"``, which compiles
        CUDA C++.

    Raises
    ------
    Exception
        Of several types, all from cuda.bindings and cuda.pathfinder, if it is not found or does not load.

    Examples
    --------
    >>> version, path = library("nvJitLink")
    >>> version.startswith("13.")
    True
    """
    path = pathfinder.load_nvidia_dynamic_lib(name).abs_path or "loaded already"
    if name == "nvrtc":
        _, *version = nvrtc.nvrtcVersion()
    else:
        version = {"nvvm": nvvm, "nvJitLink": nvjitlink}[name].version()
    return ".".join(map(str, version)), path
