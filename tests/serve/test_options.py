"""What a cache cannot be made of is refused when it is made, and named."""

from __future__ import annotations

import math

import pytest

import graphdsl as gd
from tests.serve.graphs import cache_of

WRONG = [
    ("build", 3),
    ("buckets", [1, 2]),
    ("device", "cuda:0"),
    ("inputs", ["raw"]),
    ("inputs", {"raw": "batch"}),
    ("outputs", ["out"]),
    ("sizes", ["batch"]),
    ("concurrency", 0),
    ("concurrency", True),
    ("max_bytes", 0),
    ("max_bytes", "1 GB"),
    ("max_bytes", 1e9),
    ("fallback", 3),
    ("patience", -1),
    ("patience", "1"),
    ("patience", math.nan),  # which a wait never reaches
    ("patience", math.inf),
    ("observer", "metric"),
    ("observer", gd.Metrics),
    ("memory", 3),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_each_option_is_named(field, value):
    given = {"build": lambda batch: None, "buckets": gd.Buckets(batch=[1]), "device": gd.emulator()}
    with pytest.raises(gd.DeclarationError, match=f"^{field}.* = .*: this is ") as caught:
        gd.GraphCache(**{**given, field: value})
    assert caught.value.field.startswith(field)


@pytest.mark.parametrize("patience", [None, 0, 0.5])
def test_what_is_right_is_taken(patience):
    with cache_of(patience=patience, max_bytes=10**9, fallback=dict) as cache:
        assert cache(batch=9) == {"batch": 9}
