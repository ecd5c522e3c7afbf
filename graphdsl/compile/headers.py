"""The headers of a CUDA C++ source that the user has written: machine code follows from them, too.

Those of the toolkit belong to its version. This module must not compile anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from graphdsl.declare.sources import SourceKernel

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]+(?:[\"<]([^\">\n]+)[\">]|(\w+))", re.MULTILINE)


class Headers:
    """The user's headers of a kernel, as they were when this object was made.

    Parameters
    ----------
    kernel : SourceKernel, optional
        In CUDA C++; without one there are no headers.

    Attributes
    ----------
    folders : list of Path
        Where they are looked for.
    """

    def __init__(self, kernel: SourceKernel | None = None) -> None:
        self.folders: list[Path] = []
        self._states: dict[Path, tuple[int, int] | None] = {}
        self._known = True
        if kernel is not None:
            own = [Path(kernel.path).parent] if kernel.path else []
            self.folders = [*own, *map(Path, _listed(kernel.options.get("include_path")))]
            for name in _listed(kernel.options.get("pre_include")):
                self._add(name, [Path.cwd()])
            self._scan(kernel.code.decode(errors="replace"), [Path.cwd()])

    def _scan(self, text: str, beside: list[Path]) -> None:
        for name, macro in _INCLUDE.findall(text):
            if macro:
                self._known = False  # what a macro stands for is the compiler's to know
            else:
                self._add(name, beside)

    def _add(self, name: str, beside: list[Path]) -> None:
        path = next((path for folder in (*beside, *self.folders) if (path := folder / name).is_file()), None)
        if path is not None and path not in self._states:
            self._states[path] = _state(path)
            self._scan(path.read_text(errors="replace"), [path.parent])

    def contents(self) -> list[tuple[str, bytes]] | None:
        """Name and contents of each; None if they cannot all be told."""
        return [(str(path), path.read_bytes()) for path in self._states] if self._known else None

    def unchanged(self) -> bool:
        """True if all that are known are the same now."""
        return self._known and all(_state(path) == state for path, state in self._states.items())


def _listed(given: str | Iterable[str] | None) -> list[str]:
    return [] if given is None else [given] if isinstance(given, str) else [str(item) for item in given]


def _state(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
