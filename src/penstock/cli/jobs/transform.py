"""`penstock transform`: a model over files, by CreateTransformJob; it is followed to its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.jobs import transform_options
from penstock.cli.jobs.transform_job import JobAsked, members_of, model_of
from penstock.cli.output import note, print_json
from penstock.cli.transform_follow import follow, outcome


def transform(
    model: transform_options.Model,
    input_: transform_options.Input,
    output: transform_options.Output,
    name: Annotated[
        str, typer.Option("--name", help="Of the job [the model's, with date and time].")
    ] = "",
    content_type: transform_options.ContentType = "",
    accept: transform_options.Accept = "",
    split: transform_options.Split = "",
    compression: transform_options.Compression = "",
    assemble: transform_options.Assemble = "",
    strategy: transform_options.Strategy = "",
    max_payload_mb: transform_options.PayloadMb = None,
    concurrency: transform_options.Concurrency = None,
    input_filter: transform_options.InputFilter = "",
    output_filter: transform_options.OutputFilter = "",
    join: transform_options.Join = False,
    columns: transform_options.Columns = "",
    refused: transform_options.Refused = "",
    priority: transform_options.Priority = None,
    cores: transform_options.Cores = None,
    env: transform_options.Env = None,
    image: transform_options.Image = "",
    instance_type: options.InstanceType = "ml.local.small",
    count: options.Count = 1,
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
    asked = JobAsked(
        input=input_,
        output=output,
        content_type=content_type,
        accept=accept,
        split=split,
        compression=compression,
        assemble=assemble,
        strategy=strategy,
        payload_mb=max_payload_mb,
        concurrency=concurrency,
        input_filter=input_filter,
        output_filter=output_filter,
        join=join,
        columns=columns,
        refused=refused,
        priority=priority,
        cores=cores,
        env=env or (),
        instance_type=instance_type,
        count=count,
    )
    members = members_of(asked, model)  # before a model is made of anything
    members["ModelName"], stem = model_of(client, model, image=image)
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
