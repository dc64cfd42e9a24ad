"""`penstock tune ENDPOINT|DIR --p99-ms 10`: lanes, threads, rows and delay for a latency."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.endpoints import listing
from penstock.cli.endpoints.deploy import describe
from penstock.cli.output import note, print_json, print_table
from penstock.errors import CallerError

if TYPE_CHECKING:
    from penstock.artifacts.detection.detect import Detected
    from penstock.tune.procedure import Tuned
    from penstock.tune.search import Setting

_DEFAULT_TYPE = "ml.local.small"


def tune(
    target: Annotated[
        str, typer.Argument(metavar="ENDPOINT|DIR", help="An endpoint, or a folder with a model.")
    ],
    p99_ms: Annotated[float, typer.Option("--p99-ms", help="Latency to stay within, 99 of 100.")],
    tokens: Annotated[
        list[int] | None,
        typer.Option("--tokens", help="Length of expected requests; several are equally often."),
    ] = None,
    rows_max: Annotated[
        int, typer.Option("--rows-max", min=1, max=4096, help="Largest batch that is tried.")
    ] = 32,
    instance_type: Annotated[
        str,
        typer.Option("--instance-type", help=f"To tune for [the endpoint's, or {_DEFAULT_TYPE}]."),
    ] = "",
    budget_s: Annotated[
        float, typer.Option("--budget-s", min=10.0, help="Time to spend, about.")
    ] = 120.0,
    live: Annotated[bool, typer.Option(help="Verify the best on a real server.")] = True,
    write: Annotated[
        bool | None,
        typer.Option(
            "--write/--no-write", help="Write them into model.yaml [where the folder is here]."
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", help="Draw rate against P99 (extra `tune`).")
    ] = None,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Find the settings that carry the highest rate within a latency on this machine.

    Measures the model's run times, searches in the twin, verifies the best on a real server.
    """
    if not p99_ms > 0:
        raise CallerError("p99-invalid", f"--p99-ms {p99_ms:g}", hint="Give more than 0 ms.")
    if any(length < 1 for length in tokens or ()):
        raise CallerError("tokens-invalid", "--tokens takes lengths of at least 1")
    from penstock.tune import procedure, report  # noqa: PLC0415 - NumPy, runtimes

    if png is not None:
        report.check_drawable(png)  # now, not after minutes of measuring
    with _found(target, server) as (detected, its_type):
        spec = procedure.TuneSpec(
            p99_s=p99_ms / 1e3,
            cores=_cores(instance_type or its_type),
            instance_type=instance_type or its_type,
            tokens=tuple(tokens or (16,)),
            rows_max=rows_max,
            budget_s=budget_s,
            live=live,
        )
        tuned = procedure.tune(detected.root, detected.description, spec, say=note)
        if server.json_:
            print_json(report.as_json(tuned))
        else:
            _print(tuned)
        if tuned.chosen is None:  # there is nothing to draw
            raise CallerError(
                "p99-out-of-reach",
                report.closest(tuned),
                hint="Allow more time, compile the model (penstock compile), or name a larger "
                "--instance-type.",
            )
        if png is not None:
            report.write_png(tuned, png)
            note(f"wrote {png}")
        _keep(tuned.chosen, target, detected, write=write, quiet=server.json_)


def _keep(
    chosen: Setting, target: str, detected: Detected, *, write: bool | None, quiet: bool
) -> None:
    """Writes the result into model.yaml, or prints it where that is not requested or not
    allowed."""
    from penstock.tune import search  # noqa: PLC0415 - as above

    if write is None:
        write = not detected.digest
    if write:
        folder = _folder(target, detected)
        note(f"wrote {search.write(folder, detected.description, chosen)}")
    if not quiet:
        print(f"\nin model.yaml:\n\n{search.lines(chosen)}")


def _print(tuned: Tuned) -> None:
    from penstock.tune import report  # noqa: PLC0415 - as above

    spec = tuned.spec
    title = (
        f"highest rates within P99 {spec.p99_s * 1e3:g} ms, {spec.cores} cores, "
        f"{', '.join(map(str, spec.tokens))} tokens (* chosen)"
    )
    print_table(title, report.COLUMNS, report.rows(tuned))
    plot = report.plot(tuned)
    if plot:
        print(f"\n{plot}")
    for each in tuned.left_out:
        note(f"left out for want of time: {each}")


@contextmanager
def _found(target: str, server: options.ServerOptions) -> Iterator[tuple[Detected, str]]:
    """The model in a folder, or of an endpoint, and the instance type that serves it."""
    from penstock.artifacts.cache.cache import ArtifactCache  # noqa: PLC0415 - `--help` stays quick
    from penstock.artifacts.detection.detect import detect  # noqa: PLC0415
    from penstock.artifacts.prepare import prepare  # noqa: PLC0415
    from penstock.artifacts.sources.source import ArtifactSource  # noqa: PLC0415

    folder = Path(target).expanduser()
    if folder.is_dir():
        yield detect(folder.resolve()), _DEFAULT_TYPE
        return
    if "/" in target or target.startswith("."):
        raise CallerError(
            "artifact-not-found",
            f"there is no folder {target!r}",
            hint="Give a folder with a model, or the name of an endpoint.",
        )
    client = server.client()
    container, instance_type = _served(client, target)
    source = ArtifactSource(
        uri=str(container.get("ModelDataUrl") or ""),
        image=str(container.get("Image") or ""),
        environment=dict(container.get("Environment") or {}),
    )
    local = _local(source.uri)
    if local is not None:
        yield detect(local, image=source.image, environment=source.environment), instance_type
        return
    with tempfile.TemporaryDirectory(prefix="penstock-tune-") as cache:
        yield prepare(source, ArtifactCache(Path(cache))), instance_type


def _served(client: Client, endpoint: str) -> tuple[dict[str, Any], str]:
    """The container of an endpoint's first variant, and its instance type."""
    config_name = describe(client, endpoint)["EndpointConfigName"]
    config = client.sagemaker("DescribeEndpointConfig", EndpointConfigName=config_name)
    variant = config["ProductionVariants"][0]
    model = client.sagemaker("DescribeModel", ModelName=variant["ModelName"])
    container, *others = listing.containers_of(model)
    if others:
        raise CallerError(
            "tune-several",
            f"the model of endpoint {endpoint!r} has {len(others) + 1} containers",
            hint="Give the folder of the one that is meant.",
        )
    return dict(container), str(variant["InstanceType"])


def _local(uri: str) -> Path | None:
    """The folder that a file:// URI names on this machine."""
    parts = urlsplit(uri)
    path = Path(unquote(parts.path))
    return path if parts.scheme == "file" and path.is_dir() else None


def _folder(target: str, detected: Detected) -> Path:
    """The folder of model.yaml. Raises CallerError where only a copy of the artifact is here."""
    if detected.digest:
        raise CallerError(
            "tune-write",
            f"the artifact of {target} is not a folder on this machine",
            hint="Put the printed lines into its model.yaml and deploy it again.",
        )
    return detected.root


def _cores(instance_type: str) -> int:
    from penstock.fleet.catalogue import InstanceCatalogue  # noqa: PLC0415
    from penstock.fleet.machine import this_machine  # noqa: PLC0415

    return max(1, int(InstanceCatalogue(this_machine()).resolve(instance_type).resources.cores))
