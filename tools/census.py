"""How large the tree is, and how orderly: `python -m tools.census [FOLDER]`, a checkout's root.

Lines of code are those with a token of code: neither empty, nor a comment, nor in a docstring.
"""

from __future__ import annotations

import ast
import io
import json
import statistics
import sys
import tokenize
from collections import Counter
from pathlib import Path

_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for each in body:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    docstrings |= set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def census(folder: Path) -> dict[str, object]:
    texts = {path: path.read_text() for path in sorted(folder.rglob("*.py"))}
    lengths = [text.count("\n") for text in texts.values()]
    floors = Counter(str(path.parent.relative_to(folder)) for path in texts)
    names = Counter(
        node.name
        for text in texts.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    )
    return {
        "lines": sum(lengths),
        "code_lines": sum(map(code_lines, texts.values())),
        "files": len(texts),
        "median_lines": statistics.median(lengths),
        "files_of_60_lines_at_most": sum(length <= 60 for length in lengths),
        "fullest_floors": dict(floors.most_common(3)),
        "class_names_twice": sum(count > 1 for count in names.values()),
    }


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name in ("src/penstock", "tests"):
        print(name, json.dumps(census(root / name)))
