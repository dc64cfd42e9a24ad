"""What a Python file of an artifact defines and imports, by its syntax tree: it is not executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Larger files are not read: nobody writes an inference script of this size.
_FILE_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """What stands at the level of a module, blocks of `if` and `try` included."""

    names: frozenset[str] = frozenset()  #: of functions, classes, variables and imported objects
    imports: frozenset[str] = frozenset()  #: top-level packages, for example "sklearn"
    all_known: bool = True  #: False: the file does not parse, or imports `*`, so there may be more

    def may_define(self, *names: str) -> bool:
        """Whether it defines one of these, or could."""
        return not self.all_known or not self.names.isdisjoint(names)


def code_facts(path: Path) -> CodeFacts:
    """Never raises: a file that can't be read has facts that are not known."""
    tree = parsed(path)
    if tree is None:
        return CodeFacts(all_known=False)
    names: set[str] = set()
    imports: set[str] = set()
    for node in _at_module_level(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import):
            imports |= {alias.name.partition(".")[0] for alias in node.names}
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level:
                imports.add(node.module.partition(".")[0])
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    return CodeFacts(frozenset(names), frozenset(imports), "*" not in names)


def parsed(path: Path) -> ast.Module | None:
    """The file's syntax tree; None where it can't be read or is not Python of this version."""
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            return None
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _at_module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _at_module_level(node.body)
            yield from _at_module_level(getattr(node, "orelse", []))
            yield from _at_module_level(getattr(node, "finalbody", []))
            for handler in getattr(node, "handlers", []):
                yield from _at_module_level(handler.body)
