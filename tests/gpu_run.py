"""Run what belongs on a GPU machine, and record it in ``docs/gpu/last-run.json``.

``make gpu-test``, or ``python tests/gpu_run.py`` with any interpreter that has the dependencies; arguments go to
pytest, such as ``-n 8`` for as many processes. Tests marked ``gpu`` and all of ``tests/conformance`` are run. The
record says which GPU, driver and packages ran which code: ``trees`` holds git's own hashes of the folders as they lay
on disk, so that each equals ``git rev-parse COMMIT:FOLDER`` of the commit that was tested. Git itself is not needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "gpu" / "last-run.json"
FOLDERS = ("graphdsl", "kernels", "tests")
PACKAGES = ("cuda-bindings", "cuda-core", "llvmlite", "networkx", "numba", "numba-cuda", "numpy", "pygraphviz")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that belong on a GPU machine: this module is a plugin of pytest, in each of its processes."""
    kept = [item for item in items if item.get_closest_marker("gpu") or "conformance" in item.path.parts]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


class Counts:
    """The plugin of the first process: counts how tests end."""

    def __init__(self) -> None:
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test reports its set-up, call and tear-down: it passes in the call, and may fail or be skipped in any.
        if report.when == "call" or not report.passed:
            self.counts[report.outcome] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.counts["failed"] += report.failed


def require_checkout() -> None:
    """Make sure that what Python imports is the code whose hashes are recorded."""
    import graphdsl.kernels

    for package, folder in ((graphdsl, "graphdsl"), (graphdsl.kernels, "kernels")):
        if Path(package.__path__[0]).resolve() != ROOT / folder:
            raise RuntimeError(
                f"{package.__name__} is imported from {package.__path__[0]}, not from {ROOT / folder}. "
                "Run: python -m pip install --no-deps --no-build-isolation --editable ."
            )


def gpu_facts() -> dict[str, str]:
    """Name, compute capability and driver of the GPU that is used.

    Raises
    ------
    Exception
        Whatever the CUDA libraries raise where there is no GPU.
    """
    from cuda.bindings import driver
    from cuda.core import Device

    device = Device()
    device.set_current()
    code, cuda = driver.cuDriverGetVersion()
    if int(code):
        raise RuntimeError(f"cuDriverGetVersion returned {code}")
    return {
        "gpu": device.name,
        "compute_capability": ".".join(map(str, device.compute_capability)),
        "driver": driver_release(),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
    }


def driver_release() -> str | None:
    """Release of the kernel-mode driver, such as ``"580.159.04"``; None where the machine does not tell."""
    try:
        from cuda.core import system

        return ".".join(map(str, system.get_kernel_mode_driver_version()))
    except Exception:  # NVML may be missing or forbidden where CUDA works, as in some containers
        return None


def package_versions() -> dict[str, str | None]:
    """Versions of the packages that the result may depend on; None for one that is not installed."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions


def tree_hash(folder: Path) -> bytes:
    """Git's hash of a folder as it lies on disk, without what Python leaves there and hidden files."""
    lines = []
    for path in folder.iterdir():
        if path.name == "__pycache__" or path.name.startswith("."):
            continue
        if path.is_file():
            mode = b"100755" if os.access(path, os.X_OK) else b"100644"
            lines.append((path.name, mode, git_hash(b"blob", path.read_bytes())))
        elif (tree := tree_hash(path)) != EMPTY_TREE:  # git knows no empty folders, and sorts the others as "name/"
            lines.append((path.name + "/", b"40000", tree))
    entries = (b"%b %b\0%b" % (mode, name.rstrip("/").encode(), sha) for name, mode, sha in sorted(lines))
    return git_hash(b"tree", b"".join(entries))


def git_hash(kind: bytes, content: bytes) -> bytes:
    return hashlib.sha1(b"%b %d\0%b" % (kind, len(content), content), usedforsecurity=False).digest()


EMPTY_TREE = git_hash(b"tree", b"")


def main(arguments: list[str]) -> int:
    try:
        require_checkout()
        facts: dict[str, Any] = gpu_facts()
    except Exception as problem:
        print(f"nothing was run: {type(problem).__name__}: {problem}", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    ended = Counts()
    status = int(pytest.main(["-p", "gpu_run", "tests", *arguments], plugins=[ended]))
    record = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **facts,
        "python": platform.python_version(),
        "packages": package_versions(),
        "trees": {folder: tree_hash(ROOT / folder).hex() for folder in FOLDERS},
        **ended.counts,
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    print(f"{record['passed']} passed, {record['failed']} failed on {record['gpu']}: {RECORD.relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
