"""Walks through the syntax of a Python module, in less time than `ast.walk`: tests look at every module that there is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

_INNER: Final = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of statements that hold statements."""


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields a module or a statement, and all statements inside of it, functions' and handlers' included, but no expressions."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        for name in _INNER:
            ahead += getattr(node, name, ())


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields all that `ast.walk` yields, in another order."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        ahead += children(node)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes directly below one."""
    for value in vars(node).values():
        if isinstance(value, ast.AST):
            yield value
        elif type(value) is list:
            for item in value:
                if isinstance(item, ast.AST):
                    yield item
