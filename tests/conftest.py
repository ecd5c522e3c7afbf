"""Tests marked ``gpu`` are skipped where there is no GPU."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

# A deadline is a timed assertion: it fails where the processor is busy.
settings.register_profile("graphdsl", deadline=None)
settings.load_profile("graphdsl")

# Where the environment forbids it, each worker and each process that a test starts would compile every module anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from graphdsl.drivers.cuda import unavailable

    reason = unavailable()
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
