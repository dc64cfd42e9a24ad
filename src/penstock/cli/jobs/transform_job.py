"""A transform job as flags say it: members of CreateTransformJob, with defaults by the suffix."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from penstock.cli.client import SageMaker
from penstock.cli.endpoints import model_lookup
from penstock.cli.endpoints.deploy import artifact_uri, create_unless_there, files_of, pair
from penstock.core.apply.versioned_names import versioned_name
from penstock.errors import CallerError

#: Suffix -> (content type, how records are parted). What is not split is one record as a whole.
_FORMATS: Final = {
    ".jsonl": ("application/jsonlines", "Line"),
    ".ndjson": ("application/jsonlines", "Line"),
    ".csv": ("text/csv", "Line"),
    ".txt": ("text/plain", "Line"),
    ".parquet": ("application/x-parquet", "None"),
    ".recordio": ("application/x-recordio-protobuf", "RecordIO"),
    ".tfrecord": ("application/x-tfexample", "TFRecord"),
    ".json": ("application/json", "None"),
    ".npy": ("application/x-npy", "None"),
    ".jpg": ("image/jpeg", "None"),
    ".jpeg": ("image/jpeg", "None"),
    ".png": ("image/png", "None"),
}
_GZIP: Final = ".gz"
#: Several lines of it would be one text.
_ONE_A_REQUEST: Final = ("text/plain",)
_OPTION: Final = "PENSTOCK_TRANSFORM_"
_NAME_CHARS_MAX: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAsked:
    """What the flags say; "" and None: not said."""

    input: str
    output: str
    content_type: str = ""
    accept: str = ""
    split: str = ""
    compression: str = ""
    assemble: str = ""
    strategy: str = ""
    payload_mb: int | None = None
    concurrency: int | None = None
    input_filter: str = ""
    output_filter: str = ""
    join: bool = False
    instance_type: str = "ml.local.small"
    count: int = 1
    env: Sequence[str] = ()
    refused: str = ""
    priority: int | None = None
    cores: float | None = None
    columns: str = ""
    placeholders: bool = field(default=False)  #: of a schedule: what is read need not be there yet


def members_of(asked: JobAsked, model_name: str) -> dict[str, Any]:
    """Without a name of the job. Raises CallerError: `input-not-found`, `content-type-needed`."""
    uri = _input_uri(asked)
    content_type, split, compression = _format(asked, uri)
    split = asked.split or split
    members: dict[str, Any] = {
        "ModelName": model_name,
        "TransformInput": _known(
            {
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}},
                "ContentType": content_type,
                "SplitType": split,
                "CompressionType": asked.compression or compression,
            }
        ),
        "TransformOutput": _known(
            {
                "S3OutputPath": _uri(asked.output, asked.placeholders),
                "Accept": asked.accept,
                "AssembleWith": asked.assemble or ("Line" if split == "Line" else ""),
            }
        ),
        "TransformResources": {"InstanceType": asked.instance_type, "InstanceCount": asked.count},
        "BatchStrategy": asked.strategy
        or ("SingleRecord" if content_type in _ONE_A_REQUEST else ""),
        "MaxPayloadInMB": asked.payload_mb,
        "MaxConcurrentTransforms": asked.concurrency,
        "DataProcessing": _known(
            {
                "InputFilter": asked.input_filter,
                "OutputFilter": asked.output_filter,
                "JoinSource": "Input" if asked.join else "",
            }
        ),
        "Environment": _environment(asked),
    }
    return _known(members)


def model_of(client: SageMaker, model: str, *, image: str = "") -> tuple[str, str]:
    """(ModelName, a short name): of an artifact, which becomes a model, or of a name.

    A model that is made of an artifact is named after its content: the same is made once. Raises
    CallerError where there is neither a model nor an endpoint of that name.
    """
    is_artifact = "://" in model or "/" in model or Path(model).exists()
    if not is_artifact:
        return model_lookup.named(client, model), model
    uri = artifact_uri(model)
    container: dict[str, Any] = {"ModelDataUrl": uri}
    if image:
        container["Image"] = image
    stem = _stem(uri)
    name = versioned_name(stem, repr((sorted(container.items(), key=str), files_of(uri))))
    create_unless_there(client, "CreateModel", ModelName=name, PrimaryContainer=container)
    return name, stem


def _stem(uri: str) -> str:
    """A name after the artifact's: the folder's, and of one called so, the folder's above it."""
    parts = [part for part in unquote(urlsplit(uri).path).split("/") if part]
    parts = [re.sub(r"\.(tar\.gz|tgz)$", "", part) for part in parts]
    named = [part for part in parts if part not in ("artifact", "model")] or ["model"]
    words = re.sub(r"[^a-zA-Z0-9]+", "-", named[-1]).strip("-")
    return words[:_NAME_CHARS_MAX].strip("-") or "model"


def _format(asked: JobAsked, uri: str) -> tuple[str, str, str]:
    """(content type, split, compression), by the flags or else the suffix."""
    names = _names(uri)
    suffixes = {_suffixes(name) for name in names}
    found = next(iter(suffixes)) if len(suffixes) == 1 else ("", "")
    content_type, split = _FORMATS.get(found[0], ("", ""))
    if not asked.content_type and not content_type:
        several = len(suffixes) > 1
        raise CallerError(
            "content-type-needed",
            f"what {asked.input} holds can't be told from "
            + ("names with several suffixes" if several else f"the suffix {found[0]!r}"),
            hint="Say --content-type, and --split Line where each line is a record.",
        )
    return asked.content_type or content_type, split, found[1]


def _names(uri: str) -> list[str]:
    """Of the objects, as far as they can be seen from here; else of the URI itself."""
    path = Path(unquote(urlsplit(uri).path))
    if uri.startswith("file://") and path.is_dir():
        files = sorted(one.name for one in path.rglob("*") if one.is_file())
        return [name for name in files if not name.startswith(".")] or [path.name]
    if uri.startswith("file://") and not path.is_file() and path.parent.is_dir():
        found = [one.name for one in path.parent.iterdir() if one.name.startswith(path.name)]
        return sorted(found) or [path.name]
    return [path.name]


def _suffixes(name: str) -> tuple[str, str]:
    """(suffix, compression)"""
    lower = name.lower()
    if lower.endswith(_GZIP):
        return os.path.splitext(lower.removesuffix(_GZIP))[1], "Gzip"
    return os.path.splitext(lower)[1], ""


def _input_uri(asked: JobAsked) -> str:
    uri = _uri(asked.input, asked.placeholders)
    if uri.startswith("file://") and not asked.placeholders and not _is_there(uri):
        raise CallerError(
            "input-not-found",
            f"there is no file, folder or prefix {asked.input!r}",
            hint="Give one, or an s3:// or https:// URI.",
        )
    return uri


def _is_there(uri: str) -> bool:
    path = Path(unquote(urlsplit(uri).path))
    return path.exists() or (
        path.parent.is_dir()
        and any(one.name.startswith(path.name) for one in path.parent.iterdir())
    )


def _uri(text: str, placeholders: bool) -> str:
    if "://" in text:
        return text
    uri = Path(text).expanduser().resolve().as_uri()
    if text.endswith("/"):
        uri += "/"
    return uri.replace("%7B", "{").replace("%7D", "}") if placeholders else uri


def _environment(asked: JobAsked) -> dict[str, str]:
    options = {
        "REFUSED_RECORDS": asked.refused,
        "PRIORITY": None if asked.priority is None else str(asked.priority),
        "CORES_MAX": None if asked.cores is None else f"{asked.cores:g}",
        "COLUMNS": asked.columns,
    }
    own = {f"{_OPTION}{name}": value for name, value in options.items() if value}
    return dict(pair(one) for one in asked.env) | own


def _known(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in ("", None, {})}
