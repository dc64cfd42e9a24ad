"""No regular expression takes more than linear time, whatever text a stranger gives it.

Every expression of the server's packages is judged by its structure, and those of the service
models too, which decide about members of requests.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pattern_cost import Automaton

from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.wire.aws import patterns, validate
from penstock.wire.aws.models import CLOUDWATCH, SAGEMAKER, service_model

SOURCE = Path(__file__).resolve().parents[2] / "src" / "penstock"
#: These run with their user's own input only.
NOT_SERVERS = {"cli", "tune", "sim", "compile", "packaging"}
#: Uses of an expression that try it at every character.
SEARCHES = {"search", "findall", "finditer", "sub", "subn", "split"}

#: Expressions of service models that the structure can't judge, and why they are linear. No value
#: gets there that is longer than its shape allows.
JUDGED_BY_HAND = {
    r"/(?!.*\.\.)[a-zA-Z0-9/_.\-]+": "looks ahead once, at the beginning; one star in it",
    r"(?!\s*$).+": "looks ahead once, at the beginning; one star in it",
}


#: Expressions of the server that search, and what bounds them.
BOUNDED_BY_HAND = {"_ENVIRONMENT": "1,024 characters from each beginning"}


def _sources() -> list[Path]:
    return [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in NOT_SERVERS
        and "import re\n" in path.read_text()
    ]


def _module(path: Path) -> Any:
    return importlib.import_module(
        ".".join(("penstock", *path.relative_to(SOURCE).with_suffix("").parts))
    )


@pytest.mark.parametrize("path", _sources(), ids=lambda path: path.stem)
def test_an_expression_is_named_in_its_module_where_it_can_be_judged(path: Path) -> None:
    """`re.compile` at the top of a module, and no other function of `re`."""
    tree = ast.parse(path.read_text())
    named = {id(node.value) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)}
    if path.stem == "patterns":  # of service models: judged below
        return
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
        ):
            assert node.func.attr == "compile", f"line {node.lineno}"
            assert id(node) in named, f"line {node.lineno}"


@pytest.mark.parametrize("path", _sources(), ids=lambda path: path.stem)
def test_an_expression_of_the_server_can_be_read_in_one_way_only(path: Path) -> None:
    module = _module(path)
    searched = {
        node.func.value.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.attr in SEARCHES
    }
    for name, value in vars(module).items():
        if isinstance(value, re.Pattern) and name not in BOUNDED_BY_HAND:
            judge = Automaton(value)
            why_not = judge.why_not_searched() if name in searched else judge.why_not()
            assert not why_not, f"{name}: {why_not}"


def _patterns(shape: Any, seen: set[str]) -> Iterator[tuple[str, str, int | None]]:
    if shape.name in seen:
        return
    seen.add(shape.name)
    if shape.type_name == "structure":
        for member in shape.members.values():
            yield from _patterns(member, seen)
    elif shape.type_name == "list":
        yield from _patterns(shape.member, seen)
    elif shape.type_name == "map":
        yield from _patterns(shape.key, seen)
        yield from _patterns(shape.value, seen)
    elif shape.metadata.get("pattern") and not shape.metadata.get("enum"):
        yield shape.name, shape.metadata["pattern"], shape.metadata.get("max")


@pytest.mark.parametrize(
    ("service", "operations"),
    [(SAGEMAKER, SAGEMAKER_OPERATIONS), (CLOUDWATCH, CLOUDWATCH_OPERATIONS)],
    ids=["sagemaker", "cloudwatch"],
)
def test_the_expressions_of_served_operations_are_linear(service: str, operations: Any) -> None:
    model = service_model(service)
    seen: set[str] = set()
    judged = 0
    for operation in operations:
        shape = model.operation_model(operation).input_shape
        for name, pattern, _ in _patterns(shape, seen) if shape is not None else ():
            compiled = patterns.compiled(pattern)
            if compiled is not None and pattern not in JUDGED_BY_HAND:
                assert not Automaton(compiled).why_not(), f"{name}: {pattern}"
                judged += 1
    assert judged > 0


def test_no_value_longer_than_its_shape_allows_is_matched() -> None:
    assert validate.PATTERN_CHARS_MAX <= 2_048


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+b", r"(a|a)*b", r"([ab]x|[bc]x)*c", r"[a-z]+[0-9a-z]*x", r"\s*x?\s*y", r"(\w+\s?)*z",
     r"(?:x|x+)*y", r"[^,]*?\s*,"],
)  # fmt: skip
def test_expressions_that_can_be_made_to_stop_a_server_are_recognised(pattern: str) -> None:
    assert Automaton(re.compile(pattern)).why_not()


@pytest.mark.parametrize(
    ("pattern", "linear"),
    [(r"[a-z]+", True), (r"\s*([A-Za-z]+)=([^,\s]+)\s*(?:,|$)", False), (r"x*", False),
     (r";\s*size", True), (r"a+b", False), (r'"[^"]*"', True)],
)  # fmt: skip
def test_searching_is_linear_only_where_no_repetition_runs_through_a_beginning(
    pattern: str, linear: bool
) -> None:
    assert (not Automaton(re.compile(pattern)).why_not_searched()) is linear


@pytest.mark.parametrize(
    "pattern",
    [r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", r"\s*(?:<|<=|[a-z]+)", r"([0-9]+(\.[0-9]*)?|\.[0-9]+)",
     r'"(?:[^"\\]|\\.)*"', r"(?:ab|ac)d*", r"[a-z]+(?<!-)(/[0-9]+)?"],
)  # fmt: skip
def test_expressions_with_one_way_to_go_on_pass(pattern: str) -> None:
    assert not Automaton(re.compile(pattern)).why_not()
