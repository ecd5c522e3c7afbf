"""Render the pages and charts of this folder from its JSON files.

``python docs/benchmarks/render.py``, after ``graphdsl bench --peers --json docs/benchmarks/NAME.json`` on a machine
with a GPU: NAME.md and NAME.png are written anew. Those in smollm2 are of the language model of the examples:
``python docs/examples/smollm2/bench.py --out docs/benchmarks/smollm2/NAME.json``; those in serving of its engine,
from ``serve_bench.py`` and ``soak.py``. Needs matplotlib.
"""

import sys
from pathlib import Path

from graphdsl.bench.report import render

FOLDER = Path(__file__).resolve().parent

for source in sorted(FOLDER.glob("*.json")):
    print(*render(source))

sys.path.insert(0, str(FOLDER.parent / "examples"))

from smollm2 import report, serve_report  # noqa: E402

for source in sorted((FOLDER / "smollm2").glob("*.json")):
    print(*report.render(source))

for source in sorted((FOLDER / "serving").glob("*.json")):
    print(*serve_report.render(source))
