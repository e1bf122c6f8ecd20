"""The question which of two methods of a plugin's class is meant, where a class may override either of them."""

from __future__ import annotations


def is_newest(cls: type, name: str, *others: str) -> bool:
    """Returns whether no class below the one that defines method `name` overrides one of the `others`.

    A class that overrides only the simple method of a pair means that it is called, although it inherits the fast one.
    """
    depth = _depth(cls, name)
    return all(depth <= _depth(cls, other) for other in others)


def _depth(cls: type, name: str) -> int:
    """Returns how far up the method is defined that `cls` has: 0 for itself."""
    return next(i for i, each in enumerate(cls.__mro__) if name in vars(each))
