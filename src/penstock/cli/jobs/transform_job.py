"""A transform job from flags: members of CreateTransformJob, with defaults by the file's suffix."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import unquote, urlsplit

import typer

from penstock.cli import options
from penstock.cli.client import SageMaker
from penstock.cli.endpoints import listing
from penstock.cli.endpoints.deploy import artifact_uri, create_unless_there, files_of, pair
from penstock.core.apply.plan import versioned_name
from penstock.errors import CallerError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Options beside model, input and output. "" and None mean not given."""

    content_type: Annotated[
        str, typer.Option("--content-type", help="Of the records [by the input's suffix].")
    ] = ""
    accept: Annotated[str, typer.Option("--accept", help="Content type of the answers.")] = ""
    split: Annotated[
        str,
        typer.Option("--split", help="None, Line, RecordIO or TFRecord [by the input's suffix]."),
    ] = ""
    compression: Annotated[
        str, typer.Option("--compression", help="None or Gzip [by the input's suffix].")
    ] = ""
    assemble: Annotated[
        str, typer.Option("--assemble", help="None or Line: what parts the answers [as the split].")
    ] = ""
    strategy: Annotated[
        str, typer.Option("--strategy", help="MultiRecord or SingleRecord a request.")
    ] = ""
    max_payload_mb: Annotated[
        int | None, typer.Option("--max-payload-mb", min=0, help="Of a request [6]; 0: no limit.")
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", min=0, help="Requests at once [what the model says, else 1]."
        ),
    ] = None
    input_filter: Annotated[
        str, typer.Option("--input-filter", help="JSONPath: what of a record the model sees.")
    ] = ""
    output_filter: Annotated[
        str, typer.Option("--output-filter", help="JSONPath: what is written of record and answer.")
    ] = ""
    join: Annotated[bool, typer.Option("--join", help="Write each record with its answer.")] = False
    columns: Annotated[
        str, typer.Option("--columns", help="Of Parquet or JSON Lines: names, with commas.")
    ] = ""
    refused: Annotated[
        str,
        typer.Option(
            "--refused",
            help="Records that the model refuses: fail the job [fail], skip, or skip:N of them.",
        ),
    ] = ""
    priority: Annotated[
        int | None, typer.Option("--priority", help="Of waiting jobs the higher goes first [0].")
    ] = None
    cores: Annotated[
        float | None,
        typer.Option("--cores", min=0, help="At most so many at once [0: all that are idle]."),
    ] = None
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE, over the model's own.")
    ] = None
    image: Annotated[str, typer.Option("--image", help="Image, or local://RUNTIME.")] = ""
    instance_type: options.InstanceType = "ml.local.small"
    count: options.Count = 1


#: Suffix -> (content type, split type); without a split type, the whole object is one record.
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
#: Types in which several lines would be one text, so a request has one record.
_ONE_A_REQUEST: Final = ("text/plain",)
_OPTION: Final = "PENSTOCK_TRANSFORM_"
_NAME_CHARS_MAX: Final = 40


def job_of(
    client: SageMaker,
    options: JobOptions,
    model: str,
    input_: str,
    output: str,
    *,
    placeholders: bool = False,
) -> tuple[dict[str, Any], str]:
    """(members of CreateTransformJob without the job's name, a short name of the model).

    An artifact becomes a model, once everything else is valid. Raises CallerError, as `members_of`
    and `model_of`.
    """
    members = members_of(options, model, input_, output, placeholders=placeholders)
    members["ModelName"], stem = model_of(client, model, image=options.image)
    return members, stem


def members_of(
    options: JobOptions, model: str, input_: str, output: str, *, placeholders: bool = False
) -> dict[str, Any]:
    """Members without the job's name. Raises CallerError: `input-not-found`, `content-type-needed`.

    `placeholders`: those of a schedule; its input need not exist yet.
    """
    uri = _input_uri(input_, placeholders)
    content_type, split, compression = _format(options, input_, uri)
    split = options.split or split
    members: dict[str, Any] = {
        "ModelName": model,
        "TransformInput": _known(
            {
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}},
                "ContentType": content_type,
                "SplitType": split,
                "CompressionType": options.compression or compression,
            }
        ),
        "TransformOutput": _known(
            {
                "S3OutputPath": _uri(output, placeholders),
                "Accept": options.accept,
                "AssembleWith": options.assemble or ("Line" if split == "Line" else ""),
            }
        ),
        "TransformResources": {
            "InstanceType": options.instance_type,
            "InstanceCount": options.count,
        },
        "BatchStrategy": options.strategy
        or ("SingleRecord" if content_type in _ONE_A_REQUEST else ""),
        "MaxPayloadInMB": options.max_payload_mb,
        "MaxConcurrentTransforms": options.concurrency,
        "DataProcessing": _known(
            {
                "InputFilter": options.input_filter,
                "OutputFilter": options.output_filter,
                "JoinSource": "Input" if options.join else "",
            }
        ),
        "Environment": _environment(options),
    }
    return _known(members)


def model_of(client: SageMaker, model: str, *, image: str = "") -> tuple[str, str]:
    """(ModelName, a short name), from an artifact, which becomes a model, or from a name.

    A model made from an artifact is named after its content, so equal content makes one model.
    Raises CallerError where neither a model nor an endpoint has that name.
    """
    is_artifact = "://" in model or "/" in model or Path(model).exists()
    if not is_artifact:
        return listing.named(client, model), model
    uri = artifact_uri(model)
    container: dict[str, Any] = {"ModelDataUrl": uri}
    if image:
        container["Image"] = image
    stem = _stem(uri)
    name = versioned_name(stem, repr((sorted(container.items(), key=str), files_of(uri))))
    create_unless_there(client, "CreateModel", ModelName=name, PrimaryContainer=container)
    return name, stem


def _stem(uri: str) -> str:
    """A name from the artifact's: the folder's, or the parent folder's if the name is generic."""
    parts = [part for part in unquote(urlsplit(uri).path).split("/") if part]
    parts = [re.sub(r"\.(tar\.gz|tgz)$", "", part) for part in parts]
    named = [part for part in parts if part not in ("artifact", "model")] or ["model"]
    words = re.sub(r"[^a-zA-Z0-9]+", "-", named[-1]).strip("-")
    return words[:_NAME_CHARS_MAX].strip("-") or "model"


def _format(options: JobOptions, input_: str, uri: str) -> tuple[str, str, str]:
    """(content type, split type, compression), from the flags or else the suffix."""
    names = _names(uri)
    suffixes = {_suffixes(name) for name in names}
    found = next(iter(suffixes)) if len(suffixes) == 1 else ("", "")
    content_type, split = _FORMATS.get(found[0], ("", ""))
    if not options.content_type and not content_type:
        several = len(suffixes) > 1
        raise CallerError(
            "content-type-needed",
            f"what {input_} holds can't be told from "
            + ("names with several suffixes" if several else f"the suffix {found[0]!r}"),
            hint="Say --content-type, and --split Line where each line is a record.",
        )
    return options.content_type or content_type, split, found[1]


def _names(uri: str) -> list[str]:
    """Names of the objects, if they can be listed from here; else the URI's own."""
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


def _input_uri(given: str, placeholders: bool) -> str:
    uri = _uri(given, placeholders)
    if uri.startswith("file://") and not placeholders and not _is_there(uri):
        raise CallerError(
            "input-not-found",
            f"there is no file, folder or prefix {given!r}",
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


def _environment(options: JobOptions) -> dict[str, str]:
    named = {
        "REFUSED_RECORDS": options.refused,
        "PRIORITY": None if options.priority is None else str(options.priority),
        "CORES_MAX": None if options.cores is None else f"{options.cores:g}",
        "COLUMNS": options.columns,
    }
    own = {f"{_OPTION}{name}": value for name, value in named.items() if value}
    return dict(pair(one) for one in options.env or ()) | own


def _known(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in ("", None, {})}
