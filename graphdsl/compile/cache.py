"""Compiled images and machine code on disk, by the fingerprint of what they were made from.

An entry is one file: a line of JSON, then bytes, which are the cubin and the PTX of an image. It is checked before
use, and whatever is wrong with it, or with the folder, is a miss and never an error. Several processes may share the
folder. This module must not compile, and nothing is pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphdsl.compile.image import KernelImage, ParameterLayout

VARIABLE = "GRAPHDSL_CACHE_DIR"
"""Environment variable that names the folder; empty, it turns the cache off."""

LIMIT_BYTES = 512 * 2**20
"""Bytes that all entries may have together; beyond it, those not used for longest go."""

_SUFFIX = ".image"
_FIELDS = ("entry", "registers", "shared_bytes", "max_threads")


def folder() -> Path | None:
    """Where the entries lie: ``GRAPHDSL_CACHE_DIR``, or ``graphdsl`` in the user's cache folder; None for nowhere."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)) / "graphdsl"


def load(
    key: str, name: str, function: Callable[..., Any], target: tuple[int, int], layout: ParameterLayout
) -> KernelImage | None:
    """The image stored under a fingerprint, or None.

    Parameters
    ----------
    key : str
        The fingerprint.
    name, function, target, layout
        As `KernelImage` has them; they are not stored, since the fingerprint was made from them.
    """
    found = read(key)
    if found is None:
        return None
    header, payload = found
    try:
        if header["parameters"] != _summary(layout):
            return None
        size = header["cubin_bytes"]
        return KernelImage(
            name=name,
            cubin=payload[:size],
            ptx=payload[size:].decode(),
            target=target,
            layout=layout,
            function=function,
            **{field: header[field] for field in _FIELDS},
        )
    except (ValueError, TypeError, KeyError):
        return None


def store(key: str, image: KernelImage) -> None:
    """Keep an image under its fingerprint, where the folder allows it."""
    header = {
        "kernel": image.name,
        "target": list(image.target),
        "parameters": _summary(image.layout),
        "cubin_bytes": len(image.cubin),
        **{field: getattr(image, field) for field in _FIELDS},
    }
    write(key, header, image.cubin + image.ptx.encode())


def read(key: str) -> tuple[dict[str, Any], bytes] | None:
    """Header and bytes of the entry under a fingerprint; None if there is none, or something is wrong with it."""
    path = _path(key)
    if path is None:
        return None
    try:
        line, _, payload = path.read_bytes().partition(b"\n")
        header = json.loads(line)
        if header.pop("sha256") != _checksum(header, payload) or header["key"] != key:
            return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # its last use, for `_evict`
    return header, payload


def write(key: str, header: dict[str, Any], payload: bytes) -> None:
    """Keep an entry under a fingerprint, where the folder allows it; what ``header`` holds is data for JSON."""
    path = _path(key)
    if path is None:
        return
    header = {**header, "key": key}
    header["sha256"] = _checksum(header, payload)
    with contextlib.suppress(OSError):
        # Only the user may write here: what is loaded runs as machine code.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, json.dumps(header).encode() + b"\n" + payload)
        _evict(path.parent)


def _path(key: str) -> Path | None:
    place = folder()
    return None if place is None else place / f"{key}{_SUFFIX}"


def _checksum(header: dict[str, Any], payload: bytes) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + payload).hexdigest()


def _summary(layout: ParameterLayout) -> list[list[int]]:
    """Offset and size of each parameter."""
    return [list(parameter) for parameter in layout.parameters]


def _write(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees a part of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _evict(place: Path) -> None:
    """Remove the entries not used for longest until all fit; files left by a process that died count too."""
    found = []
    for path in place.iterdir():
        if path.suffix in (_SUFFIX, ".tmp"):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
    excess = sum(size for _, size, _ in found) - LIMIT_BYTES
    for _, size, path in sorted(found):
        if excess <= 0:
            break
        path.unlink(missing_ok=True)
        excess -= size
