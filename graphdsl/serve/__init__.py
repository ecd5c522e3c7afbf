"""Serving: graphs for buckets of shapes in a cache, one arena for all of them, and what is seen of it.

Only names stand here. Importing it imports neither CUDA nor Numba.
"""

from __future__ import annotations

from graphdsl.serve.bucket_report import PaddingReport
from graphdsl.serve.buckets import Bucket, Buckets
from graphdsl.serve.padding import Padding

__all__ = ["Bucket", "Buckets", "Padding", "PaddingReport"]
