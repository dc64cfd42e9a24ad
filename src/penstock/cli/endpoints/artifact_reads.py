"""Which artifacts are in use, and by what: read before any is removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from penstock.cli.client import SageMaker, if_there
from penstock.cli.endpoints.status import list_all

#: Concurrent Describe calls: a server may have thousands of models.
_THREADS: Final = 8
#: Members of models and inference components that name artifacts, at any depth.
_URIS: Final = frozenset({"ModelDataUrl", "S3Uri", "ArtifactUrl", "SAGEMAKER_SUBMIT_DIRECTORY"})
_READERS: Final = (
    ("ListModels", "Models", "ModelName", "DescribeModel"),
    ("ListInferenceComponents", "InferenceComponents", "InferenceComponentName",
     "DescribeInferenceComponent"),
)  # fmt: skip


def reading(client: SageMaker) -> Mapping[str, tuple[str, ...]]:
    """Model of this server, or another resource with artifacts -> their URIs.

    A resource that is deleted meanwhile uses nothing. Raises the errors of the calls, because a
    resource that can't be described may use any artifact.
    """
    found: dict[str, tuple[str, ...]] = {}
    for listing, member, key, describing in _READERS:
        names = [str(each[key]) for each in list_all(client, listing, member)]
        with ThreadPoolExecutor(_THREADS) as pool:
            described = pool.map(
                lambda name: if_there(client, describing, **{key: name}),  # noqa: B023
                names,
            )
            for name, fields in zip(names, described, strict=True):
                found[name] = found.get(name, ()) + tuple(_uris(fields))
    return found


def _uris(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            if name in _URIS and isinstance(member, str):
                yield member
            else:
                yield from _uris(member)
    elif isinstance(value, list):
        for member in value:
            yield from _uris(member)
