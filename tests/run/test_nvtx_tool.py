"""A real tool that NVIDIA's package nvtx loads hears the names of graphs and nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvtx")

PROGRAM = """
import graphdsl as gd

graph = gd.Graph("demo")
with graph.scope("layer0"):
    graph.memset(graph.device_array("x", 4, "u1"), 1, name="set")
with graph.instantiate(gd.emulator()) as exe:
    exe.launch()
print(type(exe).__name__)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux") or shutil.which("gcc") is None, reason="builds a tool by gcc")
def test_a_tool_hears_the_names(tmp_path):
    tool, heard = tmp_path / "tool.so", tmp_path / "heard"
    source = Path(__file__).with_name("nvtx_tool.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", tool, source], check=True)
    environment = os.environ | {"NVTX_INJECTION64_PATH": str(tool), "NVTX_TOOL_OUT": str(heard)}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "TracedExec\n"
    assert heard.read_text().splitlines() == [
        "graphdsl 0 instantiate demo",
        "graphdsl 1 node layer0/set",
        "graphdsl 0 launch demo",
    ]
