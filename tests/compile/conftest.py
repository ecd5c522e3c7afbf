"""Images of the tests are cached in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphdsl.compile import cache


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(folder))
    return folder
