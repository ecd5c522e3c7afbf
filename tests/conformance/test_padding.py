"""Poison in the padding of a bucket is found where it reaches a real row: on the emulator and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.testing.test_padding import append, total, total_of_real

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def cache(device, kernel):
    kept = gd.to_device(device, np.zeros((6, 3), np.float32))

    def build(batch):
        g = gd.Graph("step")
        count = (g.param("count", np.int32, default=batch),)
        x, slots = g.device_array("x", (batch, 3), np.float32), g.device_array("slots", batch, np.int32)
        y, out = g.device_array("y", 1, np.float32), g.host_array("out", 1, np.float32)
        args = (x, y, *(count if kernel is total_of_real else ()))
        with g.sequence():
            g.memcpy(x, g.host_array("rows", (batch, 3), np.float32), name="load_x")
            g.memcpy(slots, g.host_array("places", batch, np.int32), name="load_slots")
            g.memset(y, 0, name="clear")
            g.kernel(kernel, grid=1, block=batch, args=args, name="total")
            g.kernel(append, grid=1, block=batch, args=(x, slots, g.external("kept", kept)), name="append")
            g.memcpy(out, y, name="store")
        return g

    return gd.GraphCache(
        build,
        gd.Buckets(batch=[1, 4]),
        device,
        inputs={"rows": gd.Padding("batch", fill=0), "places": gd.Padding("batch", scrap=5)},
        outputs={"out": (), "kept": ()},
        sizes={"batch": "count"},
    )


def test_padding_is_tried_in_each_bucket(device):
    inputs, options = {"rows": X, "places": [0, 2, 1, 4]}, {"ignore": {"kept": 5}}
    safe = cache(device, total_of_real)
    assert gd.testing.assert_padding_safe(safe, inputs, **options) == (2, 4)
    with pytest.raises(gd.PaddingError, match=r"out\[0\] = nan"):
        gd.testing.assert_padding_safe(cache(device, total), inputs, **options)
    safe.inputs["places"] = gd.Padding("batch", fill=-1)
    with pytest.raises(gd.PaddingError, match=r"kept\[5, 0\] = nan"):
        gd.testing.assert_padding_safe(safe, inputs)
