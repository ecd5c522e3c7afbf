"""Tests of the language model of the examples, as a package, so that they find each other and their example."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs" / "examples"))
