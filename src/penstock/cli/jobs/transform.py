"""`penstock transform`: runs a model over files by CreateTransformJob, and follows the job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.jobs.transform_job import job_of
from penstock.cli.jobs.transform_options import JobOptions
from penstock.cli.output import note, print_json
from penstock.cli.transform_follow import follow, outcome


@options.expanded
def transform(
    model: Annotated[
        str,
        typer.Argument(
            help="A model's or an endpoint's name; or folder, model.tar.gz, s3:// or https:// URI."
        ),
    ],
    input_: Annotated[
        str,
        typer.Argument(
            metavar="input",
            help="What to read: a file, a folder or a prefix; s3:// or https:// URI.",
        ),
    ],
    output: Annotated[
        str, typer.Argument(help="Folder or s3:// prefix: KEY.out for each object that is read.")
    ],
    *,
    name: Annotated[
        str, typer.Option("--name", help="Of the job [the model's, with date and time].")
    ] = "",
    job_options: JobOptions,
    wait: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Follow it to its end.")
    ] = True,
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Run a model over all records of files, and follow the job to its end.

    Ctrl-C asks whether the job is to be stopped; without a terminal it goes on by itself. The exit
    code is 0 when it has completed, 1 when it failed, 3 when it was stopped, and 130 when it was
    left running.
    """
    client = Client(url, key=key)
    members, stem = job_of(client, job_options, model, input_, output)
    job = name or f"{stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    client.sagemaker("CreateTransformJob", TransformJobName=job, **members)
    if not wait:
        if json_:
            print_json(client.sagemaker("DescribeTransformJob", TransformJobName=job))
        note(f"job {job} has begun; 'penstock jobs follow {job}' shows how it goes on")
        return
    described = follow(client, job)
    if json_:
        print_json(described)
    raise typer.Exit(outcome(job, described))
