"""Clean-up is not skipped by a second cancel: whatever it awaits is awaited by `cleanup.shielded`.

A clean-up block is a `finally`, an `except` that catches a cancel, one that raises again at its
end, and `__aexit__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "penstock"
SHIELD = SOURCE / "cleanup.py"

_OTHER_CODE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_WAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
_CATCHES_CANCEL = {"CancelledError", "BaseException"}


def faults(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for block in _blocks(node):
            yield from _faults_of(block)
        if isinstance(node, ast.ExceptHandler) and _swallows_cancel(node):
            yield f"{node.lineno}: the cancel of this task itself ends here, too"
        if isinstance(node, ast.With | ast.AsyncWith) and _suppresses_cancel(node):
            yield f"{node.lineno}: suppresses the cancel of this task itself: asyncio.wait([task])"
        if isinstance(node, ast.Name | ast.Attribute) and _last(node) == "AsyncExitStack":
            yield f"{node.lineno}: its callbacks are clean-up: cleanup.ShieldedExitStack"


def _blocks(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    if isinstance(node, ast.Try | ast.TryStar):
        yield node.finalbody
        for handler in node.handlers:
            broad = handler.type is None or _names(handler.type) & _CATCHES_CANCEL
            if broad or isinstance(handler.body[-1], ast.Raise):
                yield handler.body
    if isinstance(node, ast.AsyncFunctionDef) and node.name == "__aexit__":
        yield node.body


def _faults_of(block: Sequence[ast.stmt]) -> Iterator[str]:
    waits = [one for one in _within(block) if isinstance(one, _WAITS)]
    for wait in waits:
        call = wait.value if isinstance(wait, ast.Await) else None
        if not (isinstance(call, ast.Call) and _last(call.func) == "shielded"):
            yield f"{wait.lineno}: a second cancel skips what follows here: cleanup.shielded"
    if len(waits) > 1:
        yield f"{waits[1].lineno}: skipped where the first raises: one coroutine for both"
    for at, statement in enumerate(block):
        if _any(_WAITS, [statement]):
            after = block[at + 1 :]
            if any(not isinstance(one, ast.Raise | ast.Return) for one in after):
                yield f"{after[0].lineno}: skipped where the line before raises a cancel"
            if _any((ast.For, ast.While), [statement]):
                yield f"{statement.lineno}: the rest of the loop is skipped where one turn raises"


def _any(kinds: type[ast.AST] | tuple[type[ast.AST], ...], nodes: Sequence[ast.AST]) -> bool:
    return any(isinstance(one, kinds) for one in _within(nodes))


def _within(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """What runs there: not what is only defined there."""
    for node in nodes:
        if not isinstance(node, _OTHER_CODE):
            yield node
            yield from _within(list(ast.iter_child_nodes(node)))


def _names(node: ast.expr | None) -> set[str]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node] if node is not None else []
    return {_last(part) for part in parts}


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _swallows_cancel(node: ast.ExceptHandler) -> bool:
    return "CancelledError" in _names(node.type) and not _any(ast.Raise, node.body)


def _suppresses_cancel(node: ast.With | ast.AsyncWith) -> bool:
    calls = [one.context_expr for one in node.items if isinstance(one.context_expr, ast.Call)]
    return _any(_WAITS, node.body) and any(
        _last(call.func) == "suppress" and {_last(each) for each in call.args} & _CATCHES_CANCEL
        for call in calls
    )


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_clean_up_is_shielded_from_a_second_cancel(path: Path) -> None:
    if path != SHIELD:
        assert list(faults(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "body",
    [
        "try: pass\n finally: await close()",
        "try: pass\n except BaseException: await close(); raise",
        "try: pass\n except asyncio.CancelledError: await close(); raise",
        "try: pass\n except TimeoutError: await close(); raise Late() from None",
        "try: pass\n except Exception:\n  async with lock: free()\n  raise",
        "try: pass\n finally: await shielded(a()); await shielded(b())",
        "try: pass\n finally: await shielded(a()); free()",
        "try: pass\n finally:\n  for one in ways: await shielded(one.close())",
        "try: await task\n except asyncio.CancelledError: pass",
        "with suppress(asyncio.CancelledError): await task",
        "async with AsyncExitStack() as stack: pass",
    ],
)
def test_a_clean_up_that_can_be_skipped_is_found(body: str) -> None:
    assert list(faults(ast.parse(f"async def f():\n {body}\n")))


@pytest.mark.parametrize(
    "body",
    [
        "try: pass\n finally: await shielded(close())",
        "try: pass\n except BaseException:\n  free(); await shielded(close()); raise",
        "try: pass\n except TimeoutError: await close()",
        "try: pass\n finally:\n  async def close(): await there()\n  begin(close())",
    ],
)
def test_a_clean_up_that_is_shielded_is_not(body: str) -> None:
    assert not list(faults(ast.parse(f"async def f():\n {body}\n")))
