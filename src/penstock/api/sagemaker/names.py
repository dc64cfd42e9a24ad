"""Names, ARNs and the error texts that clients search for (waiters and SDKs match them)."""

from __future__ import annotations

from penstock.wire.aws.errors import AwsError

#: Resource type in ARNs -> the words of AWS's error texts.
WORDS = {
    "model": "model",
    "endpoint-config": "endpoint configuration",
    "endpoint": "endpoint",
    "inference-component": "inference component",
    "transform-job": "transform job",
}


def arn(kind: str, name: str, *, region: str, account_id: str) -> str:
    """The ARN of a resource; `kind` is a key of WORDS."""
    return f"arn:aws:sagemaker:{region}:{account_id}:{kind}/{name}"


def not_found(kind: str, arn_: str) -> AwsError:
    """What Describe, Update and Delete of something missing answer."""
    return AwsError("ValidationException", f'Could not find {WORDS[kind]} "{arn_}".')


def already_exists(kind: str, arn_: str) -> AwsError:
    """SageMaker Python SDK v2 matches this text and reuses the resource."""
    return AwsError(
        "ValidationException", f'Cannot create already existing {WORDS[kind]} "{arn_}".'
    )


def invalid(message: str) -> AwsError:
    return AwsError("ValidationException", message)


def parse_arn(text: str) -> tuple[str, str]:
    """(kind, name) of one of our ARNs. Raises ValidationException for anything else."""
    parts = text.split(":", 5)
    kind, slash, name = parts[5].partition("/") if len(parts) == 6 else ("", "", "")
    if parts[:3] != ["arn", "aws", "sagemaker"] or kind not in WORDS or not slash or not name:
        raise invalid(f"Invalid ARN: {text[:256]!r} is not the ARN of a model or an endpoint.")
    return kind, name
