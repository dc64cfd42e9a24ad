"""The page docs/howto/refused.md, from the tables that the code refuses by.

`generate.py` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.api import refused_members
from penstock.api.autoscaling.operations import OPERATIONS as AUTOSCALING_OPERATIONS
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.sagemaker import security_members
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.artifacts.triton import refused_fields
from penstock.instance.codecs.generation import openai_parameters
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, SAGEMAKER, service_model

_SERVICES = (
    ("SageMaker", SAGEMAKER, SAGEMAKER_OPERATIONS),
    ("Application Auto Scaling", AUTOSCALING, AUTOSCALING_OPERATIONS),
    ("CloudWatch", CLOUDWATCH, CLOUDWATCH_OPERATIONS),
)
_RUNTIME = ("InvokeEndpoint", "InvokeEndpointAsync", "InvokeEndpointWithResponseStream")
_PATHS = {
    "chat": "chat/completions",
    "completions": "completions",
    "responses": "responses",
    "embeddings": "embeddings",
    "rerank": "rerank",
    "score": "score",
    "tokenize": "tokenize",
    "detokenize": "detokenize",
}
_HEAD = """\
# What is refused, and what has no effect

Generated from the code's own tables; do not edit. What would change an answer, or promises
something, is refused by name, with what to do instead. What has no meaning here is accepted,
because clients send it, and has no effect. Everything else that the services' own models know is
served.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_aws(), *_triton(), *_openai()]).rstrip() + "\n"


def _aws() -> Iterator[str]:
    yield "## AWS: members of requests\n"
    refused = security_members.REFUSED | {
        path: why.replace("{!r}", "{}").replace("{}", "…").rstrip(":;")
        for path, why in refused_members.REFUSED.items()
    }
    yield from _table("refused member", "why", refused)
    yield from _table(
        "member without effect", "why", security_members.WITHOUT_MEANING | refused_members.NO_EFFECT
    )
    yield "## AWS: operations\n"
    yield "Of SageMaker Runtime are served " + _listed(_RUNTIME) + ".\n"
    for title, service, served in _SERVICES:
        names = sorted(set(served) - set(refused_members.REFUSED))
        yield f"Of {title}'s {len(service_model(service).operation_names)} operations"
        yield f"{len(names)} are served: {_listed(names)}.\n"
    yield "Any other one is answered with `UnknownOperationException`.\n"


def _triton() -> Iterator[str]:
    yield "## Triton\n"
    yield "Fields of `config.pbtxt`. An unknown field is refused, too: it may be misspelt.\n"
    refused = refused_fields.REFUSED | {
        f"{name} (of an ensemble)": why for name, why in refused_fields.REFUSED_OF_ENSEMBLES.items()
    }
    rows = {
        _placed(name): f"{cause}. {hint}".strip().rstrip(".")
        for name, (cause, hint) in refused.items()
    }
    yield from _table("refused field", "why", rows)
    groups = {
        f"instance_group[].{name}": why for name, why in refused_fields.NO_EFFECT_OF_GROUPS.items()
    }
    found = refused_fields.NO_EFFECT | groups | refused_fields.READ_WITHOUT_EFFECT
    yield from _table("field without effect", "why", found)


def _openai() -> Iterator[str]:
    yield "## OpenAI\n"
    yield "Parameters of requests below `/v1/`, by OpenAI's and vLLM's names. One that stands in no"
    yield "table is refused as well: it may be misspelt. `null` asks for nothing. `rerank`,"
    yield "`score`, `tokenize` and `detokenize` are served at `/` too, as at vLLM and TEI.\n"
    for operation, path in _PATHS.items():
        yield f"### {path}\n"
        yield from _table("parameter", "what it does", openai_parameters.HONOURED[operation])
        if openai_parameters.REFUSED[operation]:
            yield from _table("refused parameter", "why", openai_parameters.REFUSED[operation])
        yield from _table("parameter without effect", "why", openai_parameters.NO_EFFECT[operation])


def _placed(name: str) -> str:
    plain, _, rest = name.partition(" ")
    place, _, values = refused_fields.PLACES.get(plain, "").partition(" ")
    prefix = "".join(f"{place}." if place else "")
    return " ".join(filter(None, (f"{prefix}{plain}", values, rest)))


def _table(name: str, why: str, rows: Mapping[str, str]) -> Iterator[str]:
    yield f"| {name} | {why} |\n| --- | --- |"
    for key, cause in rows.items():
        plain, bracket, rest = key.partition(" (")
        yield f"| `{plain}`{bracket}{rest} | {cause} |"
    yield ""


def _listed(names: object) -> str:
    return ", ".join(f"`{name}`" for name in names)  # type: ignore[attr-defined]
