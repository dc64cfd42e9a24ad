"""AsyncInferenceConfig: checked, turned into a deployment's field, and shown by Describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from penstock.api.sagemaker.context import AsyncOutputs, invalid
from penstock.core.deployment.deployment import AsyncSpec
from penstock.errors import CallerError, with_hint

MEMBER: Final = "AsyncInferenceConfig"
_SUCCESS: Final = "SUCCESS_NOTIFICATION_TOPIC"
_ERROR: Final = "ERROR_NOTIFICATION_TOPIC"
_SCHEMES: Final = ("s3://", "file:///")


async def check_async_inference(config: Mapping[str, Any], outputs: AsyncOutputs | None) -> None:
    """Refuses what could not work: a test object is written before any request is taken.

    Raises ValidationException, or NotNowError where a store can't be reached.
    """
    given = config.get(MEMBER)
    if not given:
        return
    if outputs is None:
        raise invalid(f"{MEMBER} is not supported: this server has no asynchronous inference.")
    _check(config, given, outputs.knows)
    for uri in output_prefixes(config):
        await check_prefix_writable(MEMBER, uri, outputs)


async def check_prefix_writable(member: str, uri: str, outputs: AsyncOutputs) -> None:
    """Raises as `check_async_inference` does, in the name of that member."""
    try:
        await outputs.check_writable(uri)
    except CallerError as error:
        raise invalid(f"{member}: {with_hint(error.message, error.hint)}") from error


def check_prefix(member: str, name: str, uri: str) -> None:
    """Raises ValidationException for a URI below which no objects can be written."""
    if not (uri.startswith(_SCHEMES) and ".." not in unquote(uri).split("/")):
        raise invalid(f"{member}: {name} must be an s3:// or a file:/// prefix; it is {uri!r}.")


def _check(
    config: Mapping[str, Any], given: Mapping[str, Any], knows: Callable[[str], bool]
) -> None:
    output = given.get("OutputConfig") or {}
    if not output.get("S3OutputPath"):
        raise invalid(f"{MEMBER}: OutputConfig needs S3OutputPath, where answers are written.")
    for name in ("S3OutputPath", "S3FailurePath"):
        uri = output.get(name)
        if uri:
            check_prefix(MEMBER, name, uri)
    for name in ("SuccessTopic", "ErrorTopic"):
        topic = (output.get("NotificationConfig") or {}).get(name)
        if topic and not knows(topic):
            raise invalid(
                f"{MEMBER}: no URL is configured for {name} {topic!r}. The server's operator names"
                " it in control.topics."
            )
    without = [
        one["VariantName"] for one in config["ProductionVariants"] if not one.get("ModelName")
    ]
    if without:
        raise invalid(
            "One or more endpoint features are not supported using this configuration."
            f" {MEMBER}: variant {without[0]!r} takes inference components, which have no"
            " asynchronous requests."
        )


def output_prefixes(config: Mapping[str, Any]) -> list[str]:
    """URI prefixes of the objects to be written."""
    output = (config.get(MEMBER) or {}).get("OutputConfig") or {}
    found = (output.get("S3OutputPath"), output.get("S3FailurePath"))
    return [str(uri) for uri in found if uri]


def async_spec(config: Mapping[str, Any]) -> AsyncSpec | None:
    """The field of a `DeploymentSpec`; None without the configuration."""
    given = config.get(MEMBER)
    if not given:
        return None
    output = given.get("OutputConfig") or {}
    topics = output.get("NotificationConfig") or {}
    included = topics.get("IncludeInferenceResponseIn") or []
    return AsyncSpec(
        output_uri=output["S3OutputPath"],
        failure_uri=output.get("S3FailurePath") or "",
        concurrency_max=(given.get("ClientConfig") or {}).get(
            "MaxConcurrentInvocationsPerInstance", 0
        ),
        success_topic=topics.get("SuccessTopic") or "",
        error_topic=topics.get("ErrorTopic") or "",
        answer_in_success=_SUCCESS in included,
        answer_in_error=_ERROR in included,
    )


def async_config(spec: AsyncSpec) -> dict[str, Any]:
    """The AsyncInferenceConfig that DescribeEndpoint shows."""
    output: dict[str, Any] = {"S3OutputPath": spec.output_uri}
    if spec.failure_uri:
        output["S3FailurePath"] = spec.failure_uri
    topics: dict[str, Any] = {}
    if spec.success_topic:
        topics["SuccessTopic"] = spec.success_topic
    if spec.error_topic:
        topics["ErrorTopic"] = spec.error_topic
    included = [
        name
        for name, wanted in ((_SUCCESS, spec.answer_in_success), (_ERROR, spec.answer_in_error))
        if wanted
    ]
    if included:
        topics["IncludeInferenceResponseIn"] = included
    if topics:
        output["NotificationConfig"] = topics
    shown: dict[str, Any] = {"OutputConfig": output}
    if spec.concurrency_max:
        shown["ClientConfig"] = {"MaxConcurrentInvocationsPerInstance": spec.concurrency_max}
    return shown
