"""How long ``import graphdsl`` takes, and what of it is NumPy and networkx: each in a fresh interpreter."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict

from graphdsl.bench.measure import Samples

_PARTS = ("numpy", "networkx")


def import_times(rounds: int = 5) -> Samples:
    """Time imports, once for each round after a first one that warms the disk.

    Returns
    -------
    dict of str to list of float
        ``import`` in all, in microseconds; ``import_numpy`` and ``import_networkx`` of it.
    """
    found: Samples = defaultdict(list)
    for number in range(rounds + 1):
        total = float(_python("import time; t = time.perf_counter(); import graphdsl; print(time.perf_counter() - t)"))
        if number:
            found["import"].append(1e6 * total)
    for name, time in parts(_python("import graphdsl", "-X", "importtime")).items():
        found[f"import_{name}"].append(time)
    return dict(found)


def parts(report: str) -> dict[str, float]:
    """Microseconds of NumPy and networkx in a report of ``python -X importtime``.

    Examples
    --------
    >>> parts('''import time:       100 |     120000 |     numpy
    ... import time:        90 |        200 |       numpy.linalg''')
    {'numpy': 120000.0}
    """
    found = {}
    for line in report.splitlines():
        match = re.fullmatch(r"import time:\s+\d+ \|\s+(\d+) \|\s+(\S+)", line)
        if match and match[2] in _PARTS:
            found[match[2]] = float(match[1])
    return found


def _python(code: str, *options: str) -> str:
    """What an interpreter prints, on stdout and stderr."""
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr
