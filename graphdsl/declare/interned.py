"""Equal things as one object, for as long as somebody refers to it, and whichever thread makes it first."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

from graphdsl.forks import Lock

T = TypeVar("T")


class Interned(Generic[T]):
    """Objects by what equal ones have in common.

    Examples
    --------
    >>> class Thing: ...
    >>> things = Interned()
    >>> first = things.keep("key", Thing())
    >>> things.keep("key", Thing()) is first is things.get("key")
    True
    """

    def __init__(self) -> None:
        self._objects: weakref.WeakValueDictionary[Any, T] = weakref.WeakValueDictionary()
        self._lock = Lock()
        self.get = self._objects.get  # asked far more often than anything is kept

    def keep(self, key: Any, made: T) -> T:
        """The object of a key: ``made``, if there is none yet."""
        with self._lock:  # setdefault of a weak dictionary takes several steps
            found = self._objects.get(key)
            if found is None:
                found = self._objects[key] = made
            return found
