"""Render the pages and charts of this folder from its JSON files.

``python docs/benchmarks/render.py``, after ``graphdsl bench --peers --json docs/benchmarks/NAME.json`` on a machine
with a GPU: NAME.md and NAME.png are written anew. Needs matplotlib.
"""

from pathlib import Path

from graphdsl.bench.report import render

for source in sorted(Path(__file__).parent.glob("*.json")):
    print(*render(source))
