"""`penstock transform`: runs a model over files by CreateTransformJob, and follows the job.

`penstock jobs`: all transform jobs, in whatever way they were started.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from penstock.cli import options
from penstock.cli.jobs.transform_job import JobOptions, job_of
from penstock.cli.output import note, print_found, print_json, seconds
from penstock.cli.transform_follow import follow_to_end

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Job = Annotated[str, typer.Argument(help="Name of a job.")]


@options.command(app, "list")
def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="The latest.")] = 20,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """List transform jobs, the latest first."""
    found = server.client().sagemaker(
        "ListTransformJobs", MaxResults=limit, SortBy="CreationTime", SortOrder="Descending"
    )["TransformJobSummaries"]
    columns = ("job", "status", "created", "ended", "reason")
    print_found(found, "", columns, map(_row, found), json_=server.json_)


@options.command(app, "follow")
def follow_(job: Job, server: options.ReportOptions = options.REPORT) -> None:
    """Follow a job to its end, as 'penstock transform' does."""
    follow_to_end(server.client(), job, json_=server.json_)


@options.command(app, "stop")
def stop(job: Job, server: options.ReportOptions = options.REPORT) -> None:
    """Stop a job; objects that were processed whole keep their output."""
    client = server.client()
    client.sagemaker("StopTransformJob", TransformJobName=job)
    described = client.sagemaker("DescribeTransformJob", TransformJobName=job)
    if server.json_:
        print_json(described)
    else:
        note(f"job {job} is {described['TransformJobStatus']}")


def _row(one: dict[str, Any]) -> list[object]:
    return [
        one["TransformJobName"],
        one["TransformJobStatus"],
        seconds(one.get("CreationTime")),
        seconds(one.get("TransformEndTime")),
        one.get("FailureReason"),
    ]


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
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Run a model over all records of files, and follow the job to its end.

    Ctrl-C asks whether the job is to be stopped; without a terminal it goes on by itself. The exit
    code is 0 when it has completed, 1 when it failed, 3 when it was stopped, and 130 when it was
    left running.
    """
    client = server.client()
    members, stem = job_of(client, job_options, model, input_, output)
    job = name or f"{stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    client.sagemaker("CreateTransformJob", TransformJobName=job, **members)
    if not wait:
        if server.json_:
            print_json(client.sagemaker("DescribeTransformJob", TransformJobName=job))
        note(f"job {job} has begun; 'penstock jobs follow {job}' shows how it goes on")
        return
    follow_to_end(client, job, json_=server.json_)
