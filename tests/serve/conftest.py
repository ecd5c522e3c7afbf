"""What tests of serving share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """Collections look at what a test makes, and not at all that was imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
