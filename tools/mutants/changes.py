"""What a mutant is: one small change of one node of a module's syntax tree.

The changes are those that a guard or an edge can suffer: a comparison's edge, a condition turned
round, a guard that is gone, `and` for `or`, a bound off by one, `min` for `max`, another constant,
a `return`, `break` or `continue` that is left out, a statement that is left out, another default.
Left alone are: assertions, docstrings and other texts, annotations, imports, logging, what only
shows (`__repr__`) and `check_invariants`, which are tests themselves.

Invariant: a change keeps every node's line, so a report's line is the line in the file.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import CodeType

Function = ast.FunctionDef | ast.AsyncFunctionDef

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
#: comparisons whose edge moves; the others above turn round, so they are not negated once more
_EDGES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: characters: of a change that is shown whole, and what is shown around one that is not
_WHOLE_MAX, _AROUND = 600, 40
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LOGGERS = frozenset({"log", "logger", "_log", "_LOG", "LOG", "logging", "warnings"})
_SHOWN = frozenset({"__repr__", "__str__", "check_invariants"})


@dataclass(frozen=True)
class Mutant:
    """One changed module."""

    #: index of the change in the module, in the order of the source
    number: int
    #: line of the changed node
    line: int
    #: first line of its statement, last line of the changed node: what must run to show it
    line_first: int
    line_last: int
    #: qualified name of the function or class that holds it
    function: str
    #: what was done, in words
    words: str
    #: the statement before and after, on one line: what an entry among the equivalents names
    change: str
    #: qualified name and first line of the outermost function that holds the change, decorators
    #: included; None for a change that shows only in a fresh import: a default, a class's field
    swappable: tuple[str, int] | None
    #: the module's tree, of which `done` changes one node
    tree: ast.Module
    done: _Change

    def code(self, file: str) -> CodeType:
        """The whole changed module, compiled."""
        self.done.put()
        try:
            return compile(self.tree, file, "exec", dont_inherit=True)
        finally:
            self.done.undo()


def mutants_of(source: str) -> list[Mutant]:
    """All mutants of a module, in the order of the source; no two with the same text."""
    found: list[Mutant] = []
    seen: set[tuple[int, str]] = set()
    tree = ast.parse(source)
    for place in _places(tree):
        for words, change in _changes(place):
            before = _shown(place.statement)
            change.put()
            now = place.block[place.index]
            after = "(left out)" if isinstance(now, ast.Pass) else _shown(now)
            key = (place.statement.lineno, after)
            if before != after and key not in seen:
                seen.add(key)
                found.append(
                    Mutant(
                        number=0,
                        line=place.node.lineno,
                        line_first=place.statement.lineno,
                        line_last=_last_line(place.node),
                        function=place.function,
                        words=words,
                        change=_in_brief(before, after),
                        swappable=place.owner,
                        tree=tree,
                        done=change,
                    )
                )
            change.undo()
    found.sort(key=lambda one: one.line)
    return [replace(one, number=number) for number, one in enumerate(found)]


def _last_line(node: ast.expr | ast.stmt) -> int:
    """Of a statement with blocks in it, of its head."""
    body = getattr(node, "body", None)
    if isinstance(node, ast.stmt) and isinstance(body, list) and body:
        return max(node.lineno, body[0].lineno - 1)
    return node.end_lineno or node.lineno


@dataclass
class _Place:
    """A node, the statement it stands in, and the list that holds the statement."""

    node: ast.expr | ast.stmt
    statement: ast.stmt
    block: list[ast.stmt]
    index: int
    function: str
    #: the outermost function, as in `Mutant.swappable`
    owner: tuple[str, int] | None
    #: the block's owner is the function itself, so a `return` at its end is its value
    at_top: bool = False
    #: names that were bound before this statement in the same function
    bound: frozenset[str] = frozenset()


def _places(tree: ast.Module) -> Iterator[_Place]:
    yield from _of_scope(tree.body, "", None)


def _of_scope(block: list[ast.stmt], name: str, owner: tuple[str, int] | None) -> Iterator[_Place]:
    """A module or a class: its functions, and the defaults of its fields."""
    for index, statement in enumerate(block):
        inner = f"{name}.{getattr(statement, 'name', '')}".strip(".")
        if isinstance(statement, ast.ClassDef):
            yield from _of_scope(statement.body, inner, owner)
        elif isinstance(statement, Function):
            yield from _of_function(block, index, inner, owner)
        elif name and isinstance(statement, ast.AnnAssign) and statement.value is not None:
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Constant):
                    yield _Place(node, statement, block, index, name, None)


def _of_function(
    block: list[ast.stmt], index: int, name: str, owner: tuple[str, int] | None
) -> Iterator[_Place]:
    function = block[index]
    assert isinstance(function, Function)
    if function.name in _SHOWN:
        return
    for default in (*function.args.defaults, *function.args.kw_defaults):
        if default is not None:
            yield _Place(default, function, block, index, name, None)
    first_line = min([function.lineno, *(one.lineno for one in function.decorator_list)])
    yield from _of_block(function.body, name, owner or (name, first_line), set(), at_top=True)


def _of_block(
    block: list[ast.stmt], name: str, owner: tuple[str, int], bound: set[str], *, at_top: bool
) -> Iterator[_Place]:
    for index, statement in enumerate(block):
        if isinstance(statement, ast.ClassDef):
            yield from _of_scope([statement], name, owner)
        elif isinstance(statement, Function):
            yield from _of_function(block, index, f"{name}.{statement.name}", owner)
        elif not isinstance(statement, ast.Assert | ast.Import | ast.ImportFrom):
            if _is_said_only(statement):
                continue
            for node in (statement, *_expressions(statement)):
                yield _Place(node, statement, block, index, name, owner, at_top, frozenset(bound))
            bound |= _names_bound(statement)
            for inside in _blocks(statement):
                yield from _of_block(inside, name, owner, bound, at_top=False)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        inside = getattr(statement, field, None)
        if inside:
            yield inside
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Expressions of the statement itself: not of the blocks in it, annotations or texts."""
    if isinstance(statement, ast.Raise):
        return  # which error it is has its own tests; its text has none
    pending = [
        child
        for field, value in ast.iter_fields(statement)
        if field not in ("annotation", "body", "orelse", "finalbody", "handlers", "cases")
        for child in (value if isinstance(value, list) else [value])
        if isinstance(child, ast.AST)
    ]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.JoinedStr | ast.stmt):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue  # zip's own assertion
        if isinstance(node, ast.expr):
            yield node
        pending.extend(ast.iter_child_nodes(node))


def _is_said_only(statement: ast.stmt) -> bool:
    """A docstring or a line for the log."""
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        owner = value.func.value
        said = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        return said in _LOGGERS
    return False


def _names_bound(statement: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


class _Change:
    """A pair of steps: do it, undo it."""

    def __init__(self, owner: object, field: str, value: object) -> None:
        self._owner, self._field, self._value = owner, field, value
        self._kept = getattr(owner, field)

    def put(self) -> None:
        setattr(self._owner, self._field, self._value)

    def undo(self) -> None:
        setattr(self._owner, self._field, self._kept)


def _changes(place: _Place) -> Iterator[tuple[str, _Change]]:
    node = place.node
    if isinstance(node, ast.stmt):
        yield from _of_statement(place, node)
        return
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            ops = list(node.ops)
            ops[index] = _COMPARISONS[type(operator)]()
            moved = isinstance(operator, _EDGES)
            yield (
                "the comparison's edge" if moved else "comparison turned",
                _Change(node, "ops", ops),
            )
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or swapped", _Change(node, "op", other)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "`not` left out", _Change(node, "operand", _negated(node.operand))
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_sequence(node):
        yield "another operator", _Change(node, "op", _ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.IfExp) and _can_be_negated(node.test):
        yield "condition negated", _Change(node, "test", _negated(node.test))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in _NAMES:
            yield "min/max, any/all swapped", _Change(node.func, "id", _NAMES[node.func.id])
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        for part in node.generators:
            if part.ifs:
                yield "the comprehension's condition left out", _Change(part, "ifs", [])
    elif isinstance(node, ast.Constant):
        for value in _other_constants(node.value):
            yield "another constant", _Change(node, "value", value)


def _is_sequence(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr | ast.List | ast.Tuple)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _other_constants(value: object) -> tuple[object, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return {0: (1,), 1: (0, 2)}.get(value, (value + 1, value - 1))
    if isinstance(value, float):
        return (1.0,) if value == 0 else (value * 2,)
    return ()


def _can_be_negated(test: ast.expr) -> bool:
    """Not what another change turns round already."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return False
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return isinstance(test.ops[0], _EDGES)
    return True


def _negated(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)


def _of_statement(place: _Place, node: ast.stmt) -> Iterator[tuple[str, _Change]]:
    if isinstance(node, ast.If | ast.While) and _can_be_negated(node.test):
        yield "condition negated", _Change(node, "test", _negated(node.test))
    if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], _LEAVES):
        yield "guard left out", _without(place)
    elif isinstance(node, ast.Return):
        if not place.at_top or node.value is None:
            yield "return left out", _without(place)
    elif isinstance(node, ast.Continue | ast.Break):
        yield f"{type(node).__name__.lower()} left out", _without(place)
    elif isinstance(node, ast.Expr | ast.Delete):
        if not isinstance(getattr(node, "value", None), ast.Yield | ast.YieldFrom):
            yield "statement left out", _without(place)
    elif isinstance(node, ast.AugAssign):
        yield "statement left out", _without(place)
        if isinstance(node.op, ast.Add | ast.Sub):
            yield "another operator", _Change(node, "op", _ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {name for target in targets for name in _names_bound(target)}
        # What was never bound would only be a NameError, or in `__init__` an AttributeError.
        if names <= place.bound and not place.function.endswith("__init__"):
            yield "statement left out", _without(place)


def _without(place: _Place) -> _Change:
    block = list(place.block)
    block[place.index] = ast.copy_location(ast.Pass(), place.statement)
    return _BlockChange(place.block, place.index, block[place.index])


class _BlockChange(_Change):
    """A statement of a list in place of another: the list itself stays the tree's."""

    def __init__(self, block: list[ast.stmt], index: int, value: ast.stmt) -> None:
        self._block, self._index, self._statement = block, index, value
        self._kept = block[index]

    def put(self) -> None:
        self._block[self._index] = self._statement

    def undo(self) -> None:
        self._block[self._index] = self._kept


def _in_brief(before: str, after: str) -> str:
    """Of a long statement only what differs, with a few words around it."""
    if len(before) + len(after) <= _WHOLE_MAX:
        return f"{before} -> {after}"
    start = _alike(before, after)
    end = _alike(before[start:][::-1], after[start:][::-1])
    first = before.rfind(" ", 0, max(0, start - _AROUND)) + 1
    parts = []
    for whole in (before, after):
        last = len(whole) - max(0, end - _AROUND)
        parts.append(f"{'... ' * (first > 0)}{whole[first:last]}{' ...' * (last < len(whole))}")
    return " -> ".join(parts)


def _alike(one: str, other: str) -> int:
    """How many first characters they share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _shown(statement: ast.stmt) -> str:
    """The statement on one line, without the blocks in it."""
    bare = copy.copy(statement)
    if hasattr(bare, "body"):
        bare.body = []
    for field in ("orelse", "finalbody", "handlers", "cases", "decorator_list"):
        if hasattr(bare, field):
            setattr(bare, field, [])
    return " ".join(ast.unparse(bare).split())
