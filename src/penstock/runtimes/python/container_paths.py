"""Whether a model's code opens files by the paths that they have in SageMaker's containers.

The toolkits' containers hold a model in /opt/ml/model, and some code names that folder instead of
using the argument of model_fn. Its process gets such a folder of its own where the kernel allows it
(`confinement`). Here it is found out by reading the code, which is not executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.artifacts.files.user_code import parsed
from penstock.runtimes.base import LoadContext

_PLACE: Final = "/opt/ml"
_FILES_MAX: Final = 500
#: Variables that are set in each model's process, so that a path beside them is never used.
_SET: Final = frozenset({"SM_MODEL_DIR", "SAGEMAKER_SUBMIT_DIRECTORY"})


def named_in(context: LoadContext) -> str:
    """Where the model's code names such a path, as "code/inference.py:12"; "" where it does not."""
    description, root = context.description, context.model_dir
    if description.triton_python or not description.file.endswith(".py"):
        return ""
    folder = (root / description.file).parent
    files = sorted(folder.rglob("*.py") if folder != root else root.glob("*.py"))
    for path in files[:_FILES_MAX]:
        if line := _line_with_path(path):
            return f"{path.relative_to(root).as_posix()}:{line}"
    return ""


def _line_with_path(path: Path) -> int:
    """The first line with such a path; 0 where there is none."""
    tree = parsed(path)
    if tree is None:
        return 0
    ignored = {id(each) for each in _never_used(tree)}
    found = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _PLACE in node.value
        and id(node) not in ignored
    ]
    return min(found, default=0)


def _never_used(tree: ast.Module) -> Iterator[ast.AST]:
    """Constants that are docstrings, or the default of a variable that is always set."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            yield node.value
        elif isinstance(node, ast.Call):
            names = {each.value for each in node.args if isinstance(each, ast.Constant)}
            if names & _SET:
                yield from node.args
