"""Who is told how far the warm-up of a cache is: nobody, a bar in the terminal, or a function.

This module must not build anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from graphdsl.serve.buckets import Bucket

Progress = Callable[[int, int, Bucket], None]
"""Is told how many buckets are done, how many there are, and which comes next."""


@contextmanager
def shown(progress: bool | Progress) -> Iterator[Progress]:
    """What is told how far a warm-up is."""
    if progress is False:
        yield lambda done, total, bucket: None
    elif progress is True:
        from rich.progress import Progress as Bar

        with Bar(transient=True) as bar:
            task = bar.add_task("building graphs")
            yield lambda done, total, bucket: bar.update(task, completed=done, total=total, description=bucket.name)
    else:
        yield progress
