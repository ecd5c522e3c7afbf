"""A small model in a GGUF file that is made here, and the real one where it is installed.

``SMOLLM2_GGUF`` names the file of the real one. Where packages are missing that the example needs, as on a bare GPU
machine, its tests are left out, and the end of the run says so.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

import graphdsl as gd

MISSING = [package for package in ("gguf", "tokenizers") if importlib.util.find_spec(package) is None]

collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if MISSING:
        terminalreporter.write_line(f"tests/docs/smollm2 was left out: {', '.join(MISSING)} is not installed")


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from .models import TINY, write_gguf

    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", TINY)


@pytest.fixture(scope="session")
def tiny(tiny_file):
    from smollm2.weights import load

    return load(tiny_file)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny):
    from smollm2.tokenizer import ChatTokenizer

    return ChatTokenizer(tiny.metadata)


@pytest.fixture(scope="session")
def real():
    """The weights of SmolLM2-135M-Instruct; tests that need them are skipped where they are not installed."""
    from smollm2.weights import find, load

    try:
        return load(find(os.environ.get("SMOLLM2_GGUF")))
    except gd.GraphdslError as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def real_tokenizer(real):
    from smollm2.tokenizer import ChatTokenizer

    return ChatTokenizer(real.metadata)
