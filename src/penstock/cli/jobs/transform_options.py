"""Options of `penstock transform` and `penstock schedule create` that describe a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from penstock.cli import options


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
    image: Annotated[str, typer.Option("--image", help="AWS image or local://RUNTIME.")] = ""
    instance_type: options.InstanceType = "ml.local.small"
    count: options.Count = 1
