"""Options of `penstock transform` and `penstock schedule create`: what a job is asked for."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        help="A model's or an endpoint's name; or folder, model.tar.gz, s3:// or https:// URI."
    ),
]
Input = Annotated[
    str,
    typer.Argument(
        metavar="input", help="What to read: a file, a folder or a prefix; s3:// or https:// URI."
    ),
]
Output = Annotated[
    str, typer.Argument(help="Folder or s3:// prefix: KEY.out for each object that is read.")
]
ContentType = Annotated[
    str, typer.Option("--content-type", help="Of the records [by the input's suffix].")
]
Accept = Annotated[str, typer.Option("--accept", help="Content type of the answers.")]
Split = Annotated[
    str,
    typer.Option("--split", help="None, Line, RecordIO or TFRecord [by the input's suffix]."),
]
Compression = Annotated[
    str, typer.Option("--compression", help="None or Gzip [by the input's suffix].")
]
Assemble = Annotated[
    str, typer.Option("--assemble", help="None or Line: what parts the answers [as the split].")
]
Strategy = Annotated[str, typer.Option("--strategy", help="MultiRecord or SingleRecord a request.")]
PayloadMb = Annotated[
    int | None, typer.Option("--max-payload-mb", min=0, help="Of a request [6]; 0: no limit.")
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", min=0, help="Requests at once [what the model says, else 1]."),
]
InputFilter = Annotated[
    str, typer.Option("--input-filter", help="JSONPath: what of a record the model sees.")
]
OutputFilter = Annotated[
    str, typer.Option("--output-filter", help="JSONPath: what is written of record and answer.")
]
Join = Annotated[bool, typer.Option("--join", help="Write each record with its answer.")]
Env = Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE, over the model's own.")]
Refused = Annotated[
    str,
    typer.Option(
        "--refused",
        help="Records that the model refuses: fail the job [fail], skip, or skip:N of them.",
    ),
]
Priority = Annotated[
    int | None, typer.Option("--priority", help="Of waiting jobs the higher goes first [0].")
]
Cores = Annotated[
    float | None,
    typer.Option("--cores", min=0, help="At most so many at once [0: all that are idle]."),
]
Columns = Annotated[
    str, typer.Option("--columns", help="Of Parquet or JSON Lines: names, with commas.")
]
Image = Annotated[str, typer.Option("--image", help="AWS image or local://RUNTIME.")]
