"""Members of requests that promise security: carried out, refused by name, or without meaning here.

A promise that is accepted and not kept is worse than a refusal: a caller who asks for encryption or
a closed network relies on it. A member is without meaning if every client sends it and ignoring it
makes nothing less safe. `docs/reference/security-members.md` is generated from these tables, and a
test finds members of the services' shapes that no table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.api.sagemaker.context import invalid

_CONTAINERS: Final = ("PrimaryContainer", "Containers[]")
_VARIANTS: Final = ("ProductionVariants[]", "ShadowProductionVariants[]")


def _of(operation: str, parts: tuple[str, ...], members: dict[str, str]) -> dict[str, str]:
    return {f"{operation}.{part}.{name}": why for part in parts for name, why in members.items()}


#: Path of the member -> how it is carried out.
CARRIED_OUT: Final = {
    "CreateModel.EnableNetworkIsolation": "the model's processes have no network, or it is refused"
    " when it is loaded",
    "CreateEndpointConfig.EnableNetworkIsolation": "the same for every model of the configuration",
    **{
        f"CreateEndpointConfig.DataCaptureConfig{part}": how
        for part, how in {
            "": "a share of the calls is written as JSON lines, with what the server may read",
            ".EnableCapture": "nothing is captured where it is false",
            ".CaptureOptions": "requests, answers, or both",
            ".CaptureOptions[].CaptureMode": "requests, answers, or both",
            ".CaptureContentTypeHeader": "which data is written as text",
        }.items()
    },
    "CreateTransformJob.DataCaptureConfig": "a job's objects are listed, at a place that the server"
    " may write to",
}

_BUCKET_KEY: Final = (
    "objects are written as the bucket's own settings say. Set the key as the bucket's default"
    " encryption"
)

#: Path of the member -> why it is refused, in the words of the error.
REFUSED: Final = {
    "CreateModel.VpcConfig": "models run on this machine's network; see EnableNetworkIsolation",
    **_of("CreateModel", _CONTAINERS, {
        "AdditionalModelDataSources": "a model has one source",
        "ModelDataSource.S3DataSource.HubAccessConfig": "there is no hub here",
        "ImageConfig.RepositoryAuthConfig": "images are pulled with the operator's credentials"
        " (containers.registries), or with those of this machine's container engine",
    }),
    "CreateEndpointConfig.VpcConfig": "models run on this machine's network; see"
    " EnableNetworkIsolation",
    "CreateEndpointConfig.KmsKeyId": "instances have no volumes of their own",
    "CreateEndpointConfig.DataCaptureConfig.KmsKeyId": _BUCKET_KEY,
    "CreateEndpointConfig.ExplainerConfig": "this server has no explainers",
    "CreateEndpointConfig.AsyncInferenceConfig.OutputConfig.KmsKeyId": _BUCKET_KEY,
    **_of("CreateEndpointConfig", _VARIANTS, {
        "CoreDumpConfig": "no core dumps are kept",
        "EnableSSMAccess": "there is no Systems Manager here",
        "ServerlessConfig": "this server has no serverless variants",
    }),
    "UpdateEndpointWeightsAndCapacities.DesiredWeightsAndCapacities[].ServerlessUpdateConfig":
    "this server has no serverless variants",
    "CreateInferenceExperiment.KmsKey": "instances have no volumes of their own",
    "CreateInferenceExperiment.DataStorageConfig.KmsKey": _BUCKET_KEY,
    "UpdateInferenceExperiment.DataStorageConfig.KmsKey": _BUCKET_KEY,
    "CreateTransformJob.DataCaptureConfig.KmsKeyId": _BUCKET_KEY,
    "CreateTransformJob.TransformOutput.KmsKeyId": "outputs are written as the bucket's own"
    " settings say",
    "CreateTransformJob.TransformResources.VolumeKmsKeyId": "instances have no volumes of their"
    " own",
}  # fmt: skip

_ROLE: Final = "there are no roles here: artifacts are read with the server's own credentials"

#: Path of the member -> why it is accepted and has no effect.
WITHOUT_MEANING: Final = {
    "CreateModel.ExecutionRoleArn": _ROLE,
    "CreateEndpointConfig.ExecutionRoleArn": _ROLE,
    "CreateInferenceExperiment.RoleArn": _ROLE,
    "RegisterScalableTarget.RoleARN": "there are no roles here: the server scales itself",
    **_of("CreateModel", _CONTAINERS, {
        "ModelDataSource.S3DataSource.ModelAccessConfig": "whoever names a model may read it",
        "ImageConfig.RepositoryAccessMode": "images are where this machine's container engine finds"
        " them",
    }),
}  # fmt: skip


def check(operation: str, params: Mapping[str, Any]) -> None:
    """Raises ValidationException for a member that is not carried out."""
    for path, why in REFUSED.items():
        asked, _, member = path.partition(".")
        if asked == operation and any(map(_asks, _values(params, member.split(".")))):
            name = member.replace("[]", "")
            raise invalid(f"{name} is not supported: {why}. Leave {name} out.")


def _asks(value: Any) -> bool:
    """Whether the value has any content: some clients send all members of a shape, empty."""
    if isinstance(value, Mapping):
        return any(map(_asks, value.values()))
    return any(map(_asks, value)) if isinstance(value, list) else bool(value)


def _values(value: Any, path: list[str]) -> Iterator[Any]:
    """The values at a path; several where it passes through lists."""
    if not path:
        yield value
        return
    name, rest = path[0], path[1:]
    found = value.get(name.removesuffix("[]")) if isinstance(value, Mapping) else None
    for each in (found or []) if name.endswith("[]") else [found]:
        yield from _values(each, rest)
