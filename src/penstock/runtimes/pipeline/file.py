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
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from penstock.artifacts.description.yaml_tree import artifact_file, read_tree
from penstock.artifacts.files.paths import ArtifactPath
from penstock.core.pipeline.spec import PipelineEvent, PipelineSpec, PipelineStepSpec
from penstock.errors import CallerError
from penstock.file_schema import (
    Keys,
    Reader,
    Version,
    matching,
    one_of,
    read_by,
)
from penstock.runtimes.pipeline.events import COUNTS, EmitRule
from penstock.runtimes.pipeline.templates import REQUEST, Filled, Scope, Template, from_environment

FILE: Final = "pipeline.yaml"
CODE: Final = "code/steps.py"
OPERATIONS: Final = ("invoke", "chat", "completions", "embeddings")
NOTICE: Final = "notice"

_SECONDS_MAX: Final = 86_400.0
_STEPS_MAX: Final = 100
_RESERVED_NAMES: Final = (REQUEST, "piece", "item")
_RESERVED_KINDS: Final = ("done", "error")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")

Way = Literal["endpoint", "http", "grpc", "python", "model", "value"]
_WAYS: Final[tuple[Way, ...]] = ("endpoint", "http", "grpc", "python", "model", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A step's `when`."""

    value: Template
    allowed: tuple[Any, ...]  #: the condition holds if the value is one of these

    def holds(self, scope: Scope) -> bool:
        found = self.value.fill(scope)
        return any(found == each and type(found) is type(each) for each in self.allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStep:
    """A step for the driver; the order of steps is in `spec`."""

    spec: PipelineStepSpec
    way: Way
    inputs: Filled
    when: Condition | None = None  #: where it does not hold, the step is skipped
    target: str = ""  #: endpoint's name, URL, gRPC target, Python function, or model
    version: int = -1  #: model: the version to use; -1 = the one that is served
    outputs: tuple[str, ...] = ()  #: model: the outputs to use; () = all
    operation: str = ""  #: endpoint: one of OPERATIONS; grpc: package.Service/Method
    stream: bool = False  #: endpoint and http: the answer comes as server-sent events
    descriptors: str = ""  #: grpc: a FileDescriptorSet below the artifact's root
    headers: tuple[tuple[str, str], ...] = ()  #: http
    emit: tuple[EmitRule, ...] = ()
    emit_events: bool = False  #: the pieces are events already
    result: Any = None  #: replaces the answer where the step fell back
    result_wanted: bool = False  #: True: another step refers to its result

    @property
    def is_given_the_request(self) -> bool:
        """Whether its inputs come from the request alone: if they are refused, it is the caller's
        fault."""
        return self.inputs.names <= {REQUEST}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    spec: PipelineSpec
    steps: dict[str, FileStep]
    code: str
    threads: int  #: threads of the worker process that runs Python steps
    requests_max: int  #: requests in the pipeline at once; others wait
    deadline_s: float | None  #: limit for a whole request, s; None: none


def _template(value: Any, _where: str) -> Template:
    try:
        return Template(value)
    except ValueError as error:
        raise ValueError(f"made of references that can be read: {error}") from None


_Value = Annotated[Template, read_by(_template)]
_Seconds = Annotated[float, Meta(ge=0.001, le=_SECONDS_MAX)]
_Kind = Annotated[
    str,
    matching(
        _KIND, "lower case letters, digits, - and _; not done or error", reserved=_RESERVED_KINDS
    ),
]


class EndpointKeys(Keys):
    """A step that calls an endpoint."""

    name: str  #: the endpoint's name; `${NAME}` is filled in from the model's Environment
    operation: Annotated[str, one_of(OPERATIONS)] = "invoke"
    stream: bool = False  #: the answer comes as server-sent events


class HttpKeys(Keys):
    """A step that sends a request to a server."""

    url: str  #: URL that begins with http://; `${NAME}` is filled in from the model's Environment
    method: Annotated[str, one_of(("POST", "GET", "PUT"))] = "POST"
    stream: bool = False  #: the answer comes as server-sent events
    headers: dict[str, str] = field(default_factory=dict)


class GrpcKeys(Keys):
    """A step that calls a gRPC method."""

    target: str  #: host:port; `${NAME}` is filled in from the model's Environment
    method: str  #: package.Service/Method
    descriptors: ArtifactPath = ""  #: a file made by protoc's --descriptor_set_out; required


class PythonKeys(Keys):
    """A step that calls a function of the file `code`."""

    function: str


class ModelStepKeys(Keys):
    """A step that runs a model of the same artifact."""

    folder: str  #: relative to the artifact's root


class WhenKeys(Keys):
    """A condition: if it does not hold, the step is skipped."""

    value: _Value  #: with a reference, such as $request.encoder
    allowed: Any = field(name="is")  #: a value, or a list of values of which one must match


class PlaceKeys(Keys):
    """A place in the output of another step."""

    step: str
    #: a number in the unit in which that step counts; left out: its end
    position: _Value | None = None


class RuleKeys(Keys):
    """One line of a step's `emit`."""

    kind: _Kind
    data: _Value | None = None  #: the event's content; left out: $piece
    many: _Value | None = field(name="for", default=None)  #: a list: one event for each `$item`
    after: str | PlaceKeys = ""  #: the step after which the event comes, or a place in its output
    count: Annotated[str, one_of(COUNTS)] = "events"


class FallbackKeys(Keys):
    """Replaces the answer of a step that failed or was late."""

    say: str = ""  #: a message for the stream
    kind: _Kind = ""  #: the kind of a constant event
    data: Any = None  #: the content of that event
    result: Any = None  #: the result that other steps get


class StepKeys(Keys):
    """One step; exactly one of six ways carries it out."""

    name: Annotated[
        str,
        matching(
            _NAME,
            "lower case letters, digits and _, and no reserved word",
            reserved=_RESERVED_NAMES,
        ),
    ]
    endpoint: EndpointKeys | None = None
    http: HttpKeys | None = None
    grpc: GrpcKeys | None = None
    python: PythonKeys | None = None
    model: ModelStepKeys | None = None
    value: _Value | None = None  #: the step's answer itself
    inputs: _Value | None = None  #: the step's input; a reference is $step.key, or $request.key
    when: WhenKeys | None = None
    needs: tuple[str, ...] = ()  #: steps that it waits for without using their results
    follows: str = ""  #: the step whose pieces it gets as they come
    each: bool = False  #: one call for each piece, instead of one call that gets all
    #: calls at once, where each piece has its own call
    calls_max: Annotated[int, Meta(ge=1, le=1024)] = 8
    #: limit of a call, s; a follower's time begins when the step that it follows has ended
    deadline_s: _Seconds | None = None
    first_s: _Seconds | None = None  #: limit until a call's first piece, s
    #: what goes into the stream; `events`: the pieces are events already
    emit: Literal["events"] | tuple[RuleKeys, ...] = ()
    #: left out: the step must succeed; `skip`: other steps get null
    fallback: Literal["skip"] | FallbackKeys | None = None


class PipelineKeys(Keys, kw_only=True):
    """A pipeline.yaml: the steps of a pipeline."""

    schema: Version
    code: ArtifactPath = CODE  #: the file with the Python steps
    #: threads of the worker process that runs Python steps
    threads: Annotated[int, Meta(ge=1, le=256)] = 32
    #: requests in the pipeline at once; others wait
    requests_max: Annotated[int, Meta(ge=1, le=4096)] = 64
    deadline_s: _Seconds | None = None  #: limit of a whole request, s
    steps: Annotated[tuple[StepKeys, ...], Meta(min_length=1, max_length=_STEPS_MAX)]


def read_pipeline(
    content: bytes, environment: Mapping[str, str], *, where: str = FILE
) -> PipelineFile:
    """Raises CallerError (`model-yaml-invalid`, `pipeline-invalid`)."""
    reader = artifact_file(where)
    file = reader.read(PipelineKeys, read_tree(content, where))
    drafts = [
        _Draft(reader, environment, keys, f"steps[{at}]").step()
        for at, keys in enumerate(file.steps)
    ]
    try:
        spec = PipelineSpec(steps=tuple(step.spec for step in drafts))
    except CallerError as error:
        raise CallerError(error.code, f"{where}: {error.message}", hint=error.hint) from None
    _check_anchors(drafts, reader)
    wanted = {name for step in drafts for name in _names_of(step)}
    return PipelineFile(
        spec=spec,
        steps={
            step.spec.name: replace(step, result_wanted=step.spec.name in wanted) for step in drafts
        },
        code=file.code,
        threads=file.threads,
        requests_max=file.requests_max,
        deadline_s=file.deadline_s,
    )


class _Draft:
    """One step of the file while it is converted for the driver."""

    def __init__(
        self, reader: Reader, environment: Mapping[str, str], keys: StepKeys, path: str
    ) -> None:
        self._reader = reader
        self._environment = environment
        self._keys = keys
        self._path = path

    def step(self) -> FileStep:
        keys = self._keys
        if keys.each and not keys.follows:
            raise self._wrong("each", True, "beside `follows`: the step whose pieces are meant")
        way, about = self._way()
        inputs = keys.value or keys.inputs or Template({})
        when = self._when()
        emit = () if keys.emit == "events" else tuple(_rule(rule) for rule in keys.emit)
        fallback, result = self._fallback()
        known = set(inputs.names) | {each for rule in emit for each in _rule_names(rule)}
        known |= when.value.names if when else set()
        if "piece" in inputs.names and not keys.each:
            raise self._wrong("inputs", "$piece", "used where `each` is true")
        if keys.name in known:
            allowed = "of other steps: this one's own answer is $piece"
            raise self._wrong("inputs", f"${keys.name}", allowed)
        known.difference_update(_RESERVED_NAMES)
        spec = PipelineStepSpec(
            name=keys.name,
            needs=tuple(sorted(known.union(keys.needs))),
            follows=keys.follows,
            each=keys.each,
            calls_max=keys.calls_max,
            deadline_s=keys.deadline_s,
            first_s=keys.first_s,
            fallback=fallback,
        )
        return FileStep(
            spec=spec, way=way, inputs=inputs, when=when, emit=emit,
            emit_events=keys.emit == "events", result=result, **about,
        )  # fmt: skip

    def _way(self) -> tuple[Way, dict[str, Any]]:
        """How the step is carried out, and the fields that describe it further."""
        keys = self._keys
        given = [way for way in _WAYS if getattr(keys, way) is not None]
        if len(given) != 1:
            allowed = f"beside exactly one of {', '.join(_WAYS)}"
            raise self._wrong("name", given or None, allowed)
        if keys.endpoint is not None:
            return "endpoint", {
                "target": self._filled("endpoint.name", keys.endpoint.name),
                "operation": keys.endpoint.operation,
                "stream": keys.endpoint.stream,
            }
        if keys.http is not None:
            url = self._filled("http.url", keys.http.url)
            if not url.startswith("http://"):
                raise self._wrong("http.url", url, "an address that begins with http://")
            return "http", {
                "target": url,
                "operation": keys.http.method,
                "stream": keys.http.stream,
                "headers": tuple(keys.http.headers.items()),
            }
        if keys.grpc is not None:
            return "grpc", self._grpc(keys.grpc)
        if keys.model is not None:
            return "model", {"target": keys.model.folder}
        if keys.python is not None:
            return "python", {"target": keys.python.function}
        return "value", {}

    def _grpc(self, keys: GrpcKeys) -> dict[str, Any]:
        target, method = self._filled("grpc.target", keys.target), keys.method.lstrip("/")
        if method.count("/") != 1:
            raise self._wrong("grpc.method", method, "package.Service/Method")
        if not keys.descriptors:
            allowed = "a file of protoc's --descriptor_set_out"
            raise self._wrong("grpc.descriptors", None, allowed)
        return {"target": target, "operation": method, "descriptors": keys.descriptors}

    def _when(self) -> Condition | None:
        keys = self._keys.when
        if keys is None:
            return None
        if not keys.value.names:
            raise self._wrong("when.value", None, "a reference, such as $request.encoder")
        if "piece" in keys.value.names:
            raise self._wrong("when.value", "$piece", "known before the step begins")
        allowed = keys.allowed
        return Condition(
            value=keys.value, allowed=tuple(allowed) if isinstance(allowed, list) else (allowed,)
        )

    def _fallback(self) -> tuple[tuple[PipelineEvent, ...] | None, Any]:
        """The events and the result that replace an answer; None: the step must succeed."""
        keys, name = self._keys.fallback, self._keys.name
        if keys is None:
            return None, None
        if isinstance(keys, str):  # skip
            return (_notice(name, ""),), None
        if keys.data is not None and not keys.kind:
            allowed = "beside `kind`: what sort of event it is"
            raise self._wrong("fallback.data", keys.data, allowed)
        # A constant event stands by itself; without one the stream gets a message that the part is
        # missing.
        events = [PipelineEvent(keys.kind, keys.data, advance=1)] if keys.kind else []
        if keys.say or not events:
            events.append(_notice(name, keys.say))
        return tuple(events), keys.result

    def _filled(self, key: str, text: str) -> str:
        """Fills in `${NAME}` from the model's environment."""
        try:
            return from_environment(text, self._environment)
        except KeyError as error:
            allowed = f"filled in: set {error.args[0]} in the model's Environment"
            raise self._wrong(key, text, allowed) from None

    def _wrong(self, key: str, value: object, allowed: str) -> CallerError:
        return self._reader.wrong(f"{self._path}.{key}", value, allowed)


def _rule(keys: RuleKeys) -> EmitRule:
    place = keys.after if isinstance(keys.after, PlaceKeys) else PlaceKeys(step=keys.after)
    return EmitRule(
        kind=keys.kind,
        data=keys.data or Template("$piece"),
        many=keys.many,
        after=place.step,
        position=place.position,
        count=keys.count,
    )


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


def _check_anchors(steps: list[FileStep], reader: Reader) -> None:
    names = [step.spec.name for step in steps]
    for at, step in enumerate(steps):
        for number, rule in enumerate(step.emit):
            if rule.after and (rule.after not in names or rule.after == step.spec.name):
                path = f"steps[{at}].emit[{number}].after"
                raise reader.wrong(path, rule.after, f"another step: {', '.join(names)}")
