"""DataCaptureConfig: checked, turned into a deployment's field, and shown by Describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.api.sagemaker.async_inference import check_prefix, check_prefix_writable
from penstock.api.sagemaker.context import AsyncOutputs, invalid
from penstock.core.deployment.deployment import CaptureSpec

MEMBER: Final = "DataCaptureConfig"
#: CaptureMode -> (the request is captured, the answer is captured)
_MODES: Final = {
    "Input": (True, False),
    "Output": (False, True),
    "InputAndOutput": (True, True),
}


async def check_data_capture(config: Mapping[str, Any], outputs: AsyncOutputs | None) -> None:
    """Refuses what could not work: a test object is written before any call is captured.

    Raises ValidationException, or NotNowError where a store can't be reached.
    """
    given = config.get(MEMBER)
    if not given:
        return
    if not given["CaptureOptions"]:
        raise invalid(f"{MEMBER}: CaptureOptions needs a CaptureMode: Input, Output, or both.")
    check_prefix(MEMBER, "DestinationS3Uri", given["DestinationS3Uri"])
    spec = capture_spec(config)
    if spec is None or not spec.enabled:
        return
    if outputs is not None:
        await check_prefix_writable(MEMBER, spec.destination_uri, outputs)


def capture_spec(config: Mapping[str, Any]) -> CaptureSpec | None:
    """The field of a `DeploymentSpec`; None without the configuration."""
    given = config.get(MEMBER)
    if not given:
        return None
    modes = [_MODES[option["CaptureMode"]] for option in given["CaptureOptions"]]
    header = given.get("CaptureContentTypeHeader") or {}
    types = {
        field: tuple(sorted({one.lower() for one in header[member]}))
        for field, member in (("csv_types", "CsvContentTypes"), ("json_types", "JsonContentTypes"))
        if header.get(member)
    }
    return CaptureSpec(
        destination_uri=given["DestinationS3Uri"],
        percentage=given["InitialSamplingPercentage"],
        enabled=given.get("EnableCapture", True),
        inputs=any(inputs for inputs, _ in modes),
        outputs=any(outputs for _, outputs in modes),
        **types,
    )


def capture_summary(spec: CaptureSpec) -> dict[str, Any]:
    """The DataCaptureConfig that DescribeEndpoint shows."""
    return {
        "EnableCapture": spec.enabled,
        "CaptureStatus": "Started" if spec.enabled else "Stopped",
        "CurrentSamplingPercentage": spec.percentage,
        "DestinationS3Uri": spec.destination_uri,
        "KmsKeyId": "",  # its shape requires it, and no key is taken
    }
