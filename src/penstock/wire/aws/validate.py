"""Checks parameters against their shape and reports faults in AWS's words.

    1 validation error detected: Value 'Foo' at 'policyType' failed to satisfy constraint: Member
    must satisfy enum value set: [PredictiveScaling, StepScaling, TargetTrackingScaling]

The model has required members, lengths, ranges, patterns and enums. Unknown members don't get
here: the protocol modules leave them out. A shape is compiled into closures once, when it is first
checked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

from penstock.wire.aws import patterns
from penstock.wire.aws.errors import AwsError

#: Number of errors shown; a list of a thousand wrong items needs no thousand sentences.
ERRORS_MAX: Final = 20
#: Counting stops here, since finding more errors would cost time without use.
_ERRORS_COUNTED_MAX: Final = 1_000
#: Longer values are not matched against patterns, and neither are values beyond their shape's
#: length, which are refused for it: both bound the cost of a pattern.
PATTERN_CHARS_MAX: Final = 2_048
_SHOWN_CHARS_MAX: Final = 1_024
_SHAPES_MAX: Final = 1_024

#: Penstock has instance types of its own beside AWS's, which also grow faster than botocore.
_INSTANCE_TYPE = re.compile(r"ml\.[A-Za-z0-9][A-Za-z0-9.-]{0,62}")

#: Artifacts may also be local files, so `file` is accepted where AWS's pattern has https or s3.
_WEB_URI = "(https|s3)://"
_FILE_URI = re.compile(r"file:///.*", re.DOTALL)

#: Bound of counts that AWS bounds by quotas: more instances and copies than any server has.
_COUNT_MAX: Final = 10_000
_COUNTS: Final = frozenset(
    {
        "InferenceComponentCopyCount", "InitialTaskCount", "ManagedInstanceScalingMaxInstanceCount",
        "ManagedInstanceScalingMinInstanceCount", "ResourceCapacity", "TaskCount",
        "TransformInstanceCount",
    }
)  # fmt: skip

#: Appends the faults of the value at the path.
Check = Callable[[Any, str, list[str]], None]
#: Returns the constraint that a scalar breaks, or None.
Rule = Callable[[Any], str | None]


def validate(shape: Any, params: dict[str, Any], *, code: str = "ValidationException") -> None:
    """Returns if `params` satisfy every constraint of `shape`, an operation's input shape or None.

    Raises:
        AwsError: `code`, with all faults.
    """
    if shape is None:
        return
    errors: list[str] = []
    _compiled(shape)(params, "", errors)
    if not errors:
        return
    plural = "s" if len(errors) > 1 else ""
    shown = "; ".join(errors[:ERRORS_MAX])
    raise AwsError(code, f"{len(errors)} validation error{plural} detected: {shown}", status=400)


@functools.lru_cache(maxsize=_SHAPES_MAX)
def _compiled(shape: Any) -> Check:
    return _check_of(shape, {})


def _check_of(shape: Any, known: dict[str, Check]) -> Check:
    """The check of a shape; `known` has those of its tree, which may contain the shape itself."""
    if shape.type_name not in ("structure", "list", "map"):
        return _scalar_check(shape)
    if shape.name in known:
        return known[shape.name]
    inner: Check | None = None

    def check(value: Any, at: str, errors: list[str]) -> None:
        if inner is not None:
            inner(value, at, errors)

    known[shape.name] = check
    if shape.type_name == "structure":
        inner = _structure_check(shape, known)
    elif shape.type_name == "list":
        inner = _list_check(shape, known)
    else:
        inner = _map_check(shape, known)
    return check


def _structure_check(shape: Any, known: dict[str, Check]) -> Check:
    if shape.is_document_type:
        return lambda value, at, errors: None
    required = frozenset(shape.required_members)
    members = [
        (name, _lower_camel(name), name in required, _check_of(member, known))
        for name, member in shape.members.items()
    ]

    def check(value: Any, at: str, errors: list[str]) -> None:
        for name, path_name, is_required, member_check in members:
            item = value.get(name)
            path = f"{at}.{path_name}" if at else path_name
            if item is not None:
                member_check(item, path, errors)
            elif is_required:
                errors.append(_null(path))

    return check


def _list_check(shape: Any, known: dict[str, Check]) -> Check:
    length = _length_rules(shape)
    member = shape.member
    scalar = member.type_name not in ("structure", "list", "map")
    rules = _scalar_rules(member)
    item_check = _check_of(member, known)

    def check(value: Any, at: str, errors: list[str]) -> None:
        _apply(length, value, at, errors, shape)
        for index, item in enumerate(value, 1):
            if len(errors) > _ERRORS_COUNTED_MAX:
                return
            if item is None:
                errors.append(_null(f"{at}.{index}.member"))
            elif not scalar:
                item_check(item, f"{at}.{index}.member", errors)
        if scalar and rules:
            _apply_inside("Member must", rules, value, value, at, errors, shape)

    return check


def _map_check(shape: Any, known: dict[str, Check]) -> Check:
    length = _length_rules(shape)
    key_rules, value_rules = _scalar_rules(shape.key), _scalar_rules(shape.value)
    scalar = shape.value.type_name not in ("structure", "list", "map")
    value_check = _check_of(shape.value, known)

    def check(value: Any, at: str, errors: list[str]) -> None:
        _apply(length, value, at, errors, shape)
        for key, item in value.items():
            if len(errors) > _ERRORS_COUNTED_MAX:
                return
            if item is None:
                errors.append(_null(f"{at}.{key[:64]}.member"))
            elif not scalar:
                value_check(item, f"{at}.{key[:64]}.member", errors)
        _apply_inside("Map keys must", key_rules, value, value, at, errors, shape)
        if scalar:
            items = value.values()
            _apply_inside("Map value must", value_rules, items, value, at, errors, shape)

    return check


def _scalar_check(shape: Any) -> Check:
    rules = _scalar_rules(shape)
    if not rules:
        return lambda value, at, errors: None

    def check(value: Any, at: str, errors: list[str]) -> None:
        _apply(rules, value, at, errors, shape)

    return check


def _apply(rules: list[Rule], value: Any, at: str, errors: list[str], shape: Any) -> None:
    for rule in rules:
        broken = rule(value)
        if broken is not None:
            errors.append(f"{_failed(shape, value, at)}: {broken}")


def _apply_inside(
    who: str, rules: list[Rule], items: Any, whole: Any, at: str, errors: list[str], shape: Any
) -> None:
    """One error for all scalars of a list or map, as AWS does: it shows the whole value."""
    broken: dict[str, None] = {}  # a set that keeps its order
    for item in items:
        broken |= {text: None for rule in rules if item is not None and (text := rule(item))}
    if broken:
        listed = ", ".join(broken)
        errors.append(f"{_failed(shape, whole, at)}: {who} satisfy constraint: [{listed}]")


def _scalar_rules(shape: Any) -> list[Rule]:
    traits = shape.metadata
    match shape.type_name:
        case "string" | "character":
            rules = _length_rules(shape)
            if traits.get("enum"):
                rules.append(_enum_rule(traits["enum"]))
            elif traits.get("pattern"):
                rules += _pattern_rules(traits["pattern"], traits.get("max"))
            return rules
        case "blob":
            return _length_rules(shape)
        case "integer" | "long" | "float" | "double":
            return _range_rules(shape)
    return []


def _length_rules(shape: Any) -> list[Rule]:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    rules: list[Rule] = []
    if low:
        text_low = f"Member must have length greater than or equal to {low}"
        rules.append(lambda value: text_low if len(value) < low else None)
    if high is not None:
        text_high = f"Member must have length less than or equal to {high}"
        rules.append(lambda value: text_high if len(value) > high else None)
    return rules


def _range_rules(shape: Any) -> list[Rule]:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if shape.name in _COUNTS:
        high = min(high or _COUNT_MAX, _COUNT_MAX)
    rules: list[Rule] = []
    if low is not None:
        text_low = f"Member must have value greater than or equal to {low}"
        rules.append(lambda value: None if value >= low else text_low)  # false for NaN
    if high is not None:
        text_high = f"Member must have value less than or equal to {high}"
        rules.append(lambda value: None if value <= high else text_high)
    return rules


#: Enums in the order in which their services print them, which is not their models' order. These
#: were seen in answers of the services; all others are printed in the model's order.
_NAMED: Final = (
    ("INSUFFICIENT_DATA", "ALARM", "OK"),
    ("PredictiveScaling", "StepScaling", "TargetTrackingScaling"),
    ("appstream", "rds", "lambda", "cassandra", "dynamodb", "custom-resource", "elasticmapreduce",
     "ec2", "comprehend", "ecs", "sagemaker"),
)  # fmt: skip


def _as_named(enum: list[str]) -> list[str]:
    """Values that a service has added to an enum since then come last."""
    for seen in _NAMED:
        if set(seen) <= set(enum):
            return [*seen, *(name for name in enum if name not in seen)]
    return enum


def _enum_rule(enum: list[str]) -> Rule:
    allowed = frozenset(enum)
    text = f"Member must satisfy enum value set: [{', '.join(_as_named(enum))}]"
    if all(name.startswith("ml.") for name in enum):
        return lambda value: None if value in allowed or _INSTANCE_TYPE.fullmatch(value) else text
    return lambda value: None if value in allowed else text


def _pattern_rules(pattern: str, chars_max: int | None) -> list[Rule]:
    compiled = patterns.compiled(pattern)
    if compiled is None:
        return []
    text = f"Member must satisfy regular expression pattern: {pattern}"
    bound = min(chars_max or PATTERN_CHARS_MAX, PATTERN_CHARS_MAX)
    files_too = pattern.removeprefix("^").startswith(_WEB_URI)

    def rule(value: str) -> str | None:
        if len(value) > bound or compiled.fullmatch(value):
            return None
        return None if files_too and _FILE_URI.fullmatch(value) else text

    return [rule]


def _null(at: str) -> str:
    return f"Value null at '{at}' failed to satisfy constraint: Member must not be null"


def _failed(shape: Any, value: Any, at: str) -> str:
    if shape.metadata.get("sensitive"):
        return f"Value at '{at}' failed to satisfy constraint"
    shown = _shown(value)
    if len(shown) > _SHOWN_CHARS_MAX:
        shown = shown[:_SHOWN_CHARS_MAX] + "..."
    return f"Value '{shown}' at '{at}' failed to satisfy constraint"


def _shown(value: Any) -> str:
    """A value in Java's notation."""
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return f"[{', '.join(_shown(item) for item in value[:64])}]"
        case dict():
            pairs = list(value.items())[:64]
            return "{" + ", ".join(f"{key}={_shown(item)}" for key, item in pairs) + "}"
        case bytes():
            return f"{len(value)} bytes"
    return str(value)


def _lower_camel(name: str) -> str:
    return name[:1].lower() + name[1:]
