"""`penstock jobs`: all transform jobs, in whatever way they were started."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.output import note, print_json, print_table, seconds
from penstock.cli.transform_follow import follow, outcome

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Job = Annotated[str, typer.Argument(help="Name of a job.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="The latest.")] = 20,
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """List transform jobs, the latest first."""
    found = Client(url, key=key).sagemaker(
        "ListTransformJobs", MaxResults=limit, SortBy="CreationTime", SortOrder="Descending"
    )["TransformJobSummaries"]
    if json_:
        print_json(found)
        return
    columns = ("job", "status", "created", "ended", "reason")
    print_table("", columns, [_row(one) for one in found])


@app.command("follow")
def follow_(
    job: Job, url: options.Url = "", key: options.Key = "", json_: options.Json = False
) -> None:
    """Follow a job to its end, as 'penstock transform' does."""
    described = follow(Client(url, key=key), job)
    if json_:
        print_json(described)
    raise typer.Exit(outcome(job, described))


@app.command("stop")
def stop(
    job: Job, url: options.Url = "", key: options.Key = "", json_: options.Json = False
) -> None:
    """Stop a job; objects that were processed whole keep their output."""
    client = Client(url, key=key)
    client.sagemaker("StopTransformJob", TransformJobName=job)
    described = client.sagemaker("DescribeTransformJob", TransformJobName=job)
    if json_:
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
