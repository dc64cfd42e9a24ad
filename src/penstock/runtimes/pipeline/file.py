"""pipeline.yaml: a pipeline's steps as they are declared, checked when a copy loads.

Every error names the file, the key's path and what to write there. A step needs whatever its
inputs refer to; `needs` adds steps that it only waits for. A step whose `when` does not hold is
skipped, and is null to others. Knows no runtime.

    schema: 1
    code: code/steps.py
    steps:
      - name: find
        python: {function: find}
        inputs: {question: $request.question}
        deadline_s: 1.0
        fallback: {say: The search is down., result: {products: []}}
      - name: answer
        endpoint: {name: writer, operation: chat, stream: true}
        inputs: {messages: $find.messages}
        emit: [{kind: text, data: {text: $piece.text}, count: sentences}]
      - name: intent
        model: {folder: models/intent}
        inputs: {ids: $find.ids}
        when: {value: $request.kind, is: [question, search]}
      - name: cards
        grpc: {target: "${CATALOGUE}", method: shop.Catalogue/Cards, descriptors: shop.binpb}
        follows: find
        each: true
        inputs: {id: $piece.id}
        emit: [{kind: product, data: $piece, after: {step: answer, position: 1}}]
        fallback: {say: The catalogue is down.}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from penstock.artifacts.description.yaml_keys import Keys
from penstock.artifacts.description.yaml_tree import read_tree
from penstock.core.pipeline.spec import PipelineEvent, PipelineSpec, PipelineStepSpec
from penstock.errors import CallerError
from penstock.runtimes.pipeline.events import COUNTS, EmitRule
from penstock.runtimes.pipeline.templates import REQUEST, Filled, Scope, Template, from_environment

FILE: Final = "pipeline.yaml"
CODE: Final = "code/steps.py"
OPERATIONS: Final = ("invoke", "chat", "completions", "embeddings")
NOTICE: Final = "notice"

_SECONDS_MAX: Final = 86_400.0
_STEPS_MAX: Final = 100
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_RESERVED_NAMES: Final = (REQUEST, "piece", "item")
_RESERVED_KINDS: Final = ("done", "error")

Way = Literal["endpoint", "http", "grpc", "python", "model", "value"]
_WAYS: Final[tuple[Way, ...]] = ("endpoint", "http", "grpc", "python", "model", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A step's `when`."""

    value: Template
    allowed: tuple[Any, ...]  #: it holds where the value is one of these

    def holds(self, scope: Scope) -> bool:
        found = self.value.fill(scope)
        return any(found == each and type(found) is type(each) for each in self.allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStep:
    """A step as the driver needs it; the order is `spec`'s business."""

    spec: PipelineStepSpec
    way: Way
    inputs: Filled
    when: Condition | None = None  #: where it does not hold, the step is skipped
    target: str = ""  #: endpoint's name, URL, gRPC target, Python function, or model
    version: int = -1  #: model: the one that is wanted; -1 = whichever is served
    outputs: tuple[str, ...] = ()  #: model: those that are wanted; () = all
    operation: str = ""  #: endpoint: one of OPERATIONS; grpc: package.Service/Method
    stream: bool = False  #: endpoint and http: the answer comes as server-sent events
    descriptors: str = ""  #: grpc: a FileDescriptorSet below the artifact's root
    headers: tuple[tuple[str, str], ...] = ()  #: http
    emit: tuple[EmitRule, ...] = ()
    emit_events: bool = False  #: the pieces are events as they are
    result: Any = None  #: in place of an answer, where it fell back
    result_wanted: bool = False  #: another step refers to it

    @property
    def is_given_the_request(self) -> bool:
        """And nothing that steps before it made: whoever refuses it refuses the caller."""
        return self.inputs.names <= {REQUEST}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    spec: PipelineSpec
    steps: dict[str, FileStep]
    code: str
    threads: int  #: of the worker process that runs Python steps
    requests_max: int  #: in the pipeline at once; more wait
    deadline_s: float | None  #: of a whole request


class _Keys(Keys):
    """`Keys` that also hand out values of any shape."""

    def anything(self, name: str, default: Any = None) -> Any:
        self._known.append(name)
        return self._left.pop(name, default)

    def has(self, name: str) -> bool:
        return name in self._left

    def _sub(self, name: str, value: object) -> _Keys:
        if not isinstance(value, dict):
            raise self.wrong(name, value, "a mapping")
        return _Keys(value, where=self._where, path=f"{self._path}{name}.")

    def template(self, name: str, default: Any = None) -> Template:
        value = self.anything(name, default)
        try:
            return Template(value)
        except ValueError as error:
            raise self.wrong(name, value, f"made of references that can be read: {error}") from None

    def part(self, name: str) -> _Keys | None:
        value = self._take(name, required=False)
        return None if value is None else self._sub(name, value)

    def parts(self, name: str) -> list[_Keys]:
        return [
            self._sub(f"{name}[{at}]", value) for at, value in enumerate(self._list(name, False))
        ]

    def seconds(self, name: str) -> float | None:
        return self.number(name, low=0.001, high=_SECONDS_MAX)

    def filled(self, name: str, environment: Mapping[str, str]) -> str:
        """Required text, with `${NAME}` from the model's environment."""
        text = self.text(name, required=True)
        try:
            return from_environment(text, environment)
        except KeyError as error:
            raise self.wrong(
                name, text, f"filled in: set {error.args[0]} in the model's Environment"
            ) from None


def read_pipeline(
    content: bytes, environment: Mapping[str, str], *, where: str = FILE
) -> PipelineFile:
    """Raises CallerError (`model-yaml-invalid`, `pipeline-invalid`)."""
    top = _Keys(read_tree(content, where), where=where)
    top.integer("schema", 1, low=1, high=1, required=True)
    code = top.path("code", CODE)
    threads = top.integer("threads", 32, low=1, high=256)
    requests_max = top.integer("requests_max", 64, low=1, high=4096)
    deadline_s = top.seconds("deadline_s")
    parts = top.parts("steps")
    if not 1 <= len(parts) <= _STEPS_MAX:
        raise top.wrong("steps", len(parts), f"a list of 1 to {_STEPS_MAX} steps")
    top.done()
    drafts = [_draft(part, environment) for part in parts]
    try:
        spec = PipelineSpec(steps=tuple(step.spec for step in drafts))
    except CallerError as error:
        raise CallerError(error.code, f"{where}: {error.message}", hint=error.hint) from None
    _check_anchors(drafts, where)
    wanted = {name for step in drafts for name in _names_of(step)}
    return PipelineFile(
        spec=spec,
        steps={step.spec.name: _with_result(step, step.spec.name in wanted) for step in drafts},
        code=code,
        threads=threads,
        requests_max=requests_max,
        deadline_s=deadline_s,
    )


def _draft(keys: _Keys, environment: Mapping[str, str]) -> FileStep:
    name = keys.text("name", required=True)
    if not _NAME.fullmatch(name) or name in _RESERVED_NAMES:
        raise keys.wrong("name", name, "lower case letters, digits and _, and no reserved word")
    follows = keys.text("follows")
    each = keys.flag("each", default=False)
    if each and not follows:
        raise keys.wrong("each", each, "beside `follows`: the step whose pieces are meant")
    way, about = _way(keys, environment)
    inputs = about.pop("inputs", None) or keys.template("inputs", {})
    when = _when(keys)
    emit_events, emit = _emit(keys)
    fallback, result = _fallback(keys, name)
    known = set(inputs.names) | {each for rule in emit for each in _rule_names(rule)}
    known |= when.value.names if when else set()
    if "piece" in inputs.names and not each:
        raise keys.wrong("inputs", "$piece", "used where `each` is true")
    if name in known:
        raise keys.wrong("inputs", f"${name}", "of other steps: this one's own answer is $piece")
    known.difference_update(_RESERVED_NAMES)
    spec = PipelineStepSpec(
        name=name,
        needs=tuple(sorted(known.union(keys.texts("needs")))),
        follows=follows,
        each=each,
        calls_max=keys.integer("calls_max", 8, low=1, high=1024),
        deadline_s=keys.seconds("deadline_s"),
        first_s=keys.seconds("first_s"),
        fallback=fallback,
    )
    keys.done()
    return FileStep(
        spec=spec, way=way, inputs=inputs, when=when, emit=emit, emit_events=emit_events,
        result=result, **about,
    )  # fmt: skip


def _way(keys: _Keys, environment: Mapping[str, str]) -> tuple[Way, dict[str, Any]]:
    """How the step is carried out, and the fields that say more of it."""
    given = [way for way in _WAYS if keys.has(way)]
    if len(given) != 1:
        raise keys.wrong("name", given or None, f"beside exactly one of {', '.join(_WAYS)}")
    (way,) = given
    if way == "value":
        return way, {"inputs": keys.template("value")}
    part = keys.part(way)
    if part is None:
        raise keys.wrong(way, None, "a mapping")
    about: dict[str, Any]
    if way == "endpoint":
        about = {
            "target": part.filled("name", environment),
            "operation": part.choice("operation", OPERATIONS, default="invoke"),
            "stream": part.flag("stream", default=False),
        }
    elif way == "http":
        url = part.filled("url", environment)
        if not url.startswith("http://"):
            raise part.wrong("url", url, "an address that begins with http://")
        about = {
            "target": url,
            "operation": part.choice("method", ("POST", "GET", "PUT"), default="POST"),
            "stream": part.flag("stream", default=False),
            "headers": tuple(part.text_map("headers").items()),
        }
    elif way == "grpc":
        about = {
            "target": part.filled("target", environment),
            "operation": part.text("method", required=True).lstrip("/"),
            "descriptors": part.path("descriptors"),
        }
        if about["operation"].count("/") != 1:
            raise part.wrong("method", about["operation"], "package.Service/Method")
        if not about["descriptors"]:
            raise part.wrong("descriptors", None, "a file of protoc's --descriptor_set_out")
    elif way == "model":
        about = {"target": part.text("folder", required=True)}
    else:
        about = {"target": part.text("function", required=True)}
    part.done()
    return way, about


def _when(keys: _Keys) -> Condition | None:
    part = keys.part("when")
    if part is None:
        return None
    if not part.has("is"):
        raise part.wrong("is", None, "a value, or a list of values of which one must be met")
    value, allowed = part.template("value"), part.anything("is")
    if not value.names:
        raise part.wrong("value", None, "a reference, such as $request.encoder")
    if "piece" in value.names:
        raise part.wrong("value", "$piece", "known before the step begins")
    part.done()
    return Condition(
        value=value, allowed=tuple(allowed) if isinstance(allowed, list) else (allowed,)
    )


def _emit(keys: _Keys) -> tuple[bool, tuple[EmitRule, ...]]:
    """Rules, or the word `events`."""
    if keys.has("emit") and keys._left["emit"] == "events":
        keys.anything("emit")
        return True, ()
    return False, tuple(_rule(part) for part in keys.parts("emit"))


def _rule(part: _Keys) -> EmitRule:
    kind = _kind(part, required=True)
    after, position = "", None
    if part.has("after") and isinstance(part._left["after"], str):
        after = part.text("after")
    else:
        place = part.part("after")
        if place is not None:
            after = place.text("step", required=True)
            position = place.template("position") if place.has("position") else None
            place.done()
    rule = EmitRule(
        kind=kind,
        data=part.template("data", "$piece"),
        many=part.template("for") if part.has("for") else None,
        after=after,
        position=position,
        count=part.choice("count", COUNTS, default="events"),
    )
    part.done()
    return rule


def _kind(part: _Keys, *, required: bool, default: str = "") -> str:
    kind = part.text("kind", default, required=required)
    if kind and (not _KIND.fullmatch(kind) or kind in _RESERVED_KINDS):
        raise part.wrong("kind", kind, "lower case letters, digits, - and _; not done or error")
    return kind


def _fallback(keys: _Keys, name: str) -> tuple[tuple[PipelineEvent, ...] | None, Any]:
    """The events and the result that stand for an answer; None: the step must do."""
    if keys.has("fallback") and keys._left["fallback"] == "skip":
        keys.anything("fallback")
        return (_notice(name, ""),), None
    part = keys.part("fallback")
    if part is None:
        return None, None
    say, kind = part.text("say"), _kind(part, required=False)
    result = part.anything("result")
    data = part.anything("data")
    if data is not None and not kind:
        raise part.wrong("data", data, "beside `kind`: what sort of event it is")
    part.done()
    # A constant event speaks for itself; without one the stream says what is missing.
    events = [PipelineEvent(kind, data, advance=1)] if kind else []
    if say or not events:
        events.append(_notice(name, say))
    return tuple(events), result


def _notice(step: str, say: str) -> PipelineEvent:
    return PipelineEvent(
        NOTICE, {"step": step, "message": say} if say else {"step": step}, advance=1
    )


def _rule_names(rule: EmitRule) -> set[str]:
    templates = [each for each in (rule.data, rule.many, rule.position) if each is not None]
    return {name for each in templates for name in each.names}


def _names_of(step: FileStep) -> set[str]:
    names = set(step.inputs.names).union(*(_rule_names(rule) for rule in step.emit))
    return names | (step.when.value.names if step.when else set())


def _with_result(step: FileStep, wanted: bool) -> FileStep:
    return replace(step, result_wanted=wanted)


def _check_anchors(steps: list[FileStep], where: str) -> None:
    names = [step.spec.name for step in steps]
    for at, step in enumerate(steps):
        for number, rule in enumerate(step.emit):
            if rule.after and (rule.after not in names or rule.after == step.spec.name):
                raise CallerError(
                    "model-yaml-invalid",
                    f"{where}: steps[{at}].emit[{number}].after is {rule.after!r}",
                    hint=f"It must be another step: {', '.join(names)}.",
                )
