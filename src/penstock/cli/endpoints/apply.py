"""`penstock apply`: endpoints and their packages from files, by a plan that is shown first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import options, output
from penstock.cli.output import note, print_json, print_table
from penstock.core.apply.plan import Action, Plan, plan
from penstock.errors import CallerError

if TYPE_CHECKING:
    from penstock.packaging.apply_spec import ApplySpec
    from penstock.packaging.wishes import Deployment

#: Most steps of one kind that are shown one by one; with more, their number is shown.
_ROWS_MAX = 10
NOT_CONFIRMED = 2


def apply(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="apply.yaml, or a folder of such files.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Carry the plan out.")] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Delete endpoints and archives of this stack that are not asked for."
        ),
    ] = False,
    version: Annotated[
        list[str] | None,
        typer.Option("--version", metavar="PACKAGE=VERSION", help="This version, as to roll back."),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until all endpoints are in service.")] = True,
    server: options.WaitOptions = options.WAIT,
) -> None:
    """Create, upload and update what is missing; exits with 2 where a plan was only shown."""
    from penstock.cli.endpoints import applying  # noqa: PLC0415 - `penstock --help` stays quick

    wanted = _wanted(path, dict(_pair(item) for item in version or ()))
    client = server.client()
    seen = applying.look(client, wanted, prune=prune)
    planned = plan(wanted.wish(), seen, prune=prune)
    if not server.json_:
        _show(planned, client.url)
    if planned.steps and not yes and not _agreed(planned):
        if server.json_:
            print_json(_fields(planned, applied=False))
        output.fail(
            CallerError("not-confirmed", "nothing was done", hint="Carry it out with --yes."),
            status=NOT_CONFIRMED,
        )
    with server.waiting(client) as waiting:
        applying.carry_out(client, wanted, planned, wait=wait, say=note, waiting=waiting)
    if server.json_:
        print_json(_fields(planned, applied=True))
    elif planned.steps:
        note(f"done: {_counts(planned)}")


def _wanted(path: Path, versions: dict[str, str]) -> Deployment:
    """Makes the packages of the files, and returns the desired state."""
    from penstock.packaging import manifest  # noqa: PLC0415 - as above
    from penstock.packaging.apply_spec import read_apply  # noqa: PLC0415
    from penstock.packaging.wishes import deployment  # noqa: PLC0415

    specs = read_apply(path)
    for spec in specs:
        _make_packages(spec)
    manifests = {spec.build: manifest.load(spec.build) for spec in specs}
    return deployment(specs, manifests, versions=versions)


def _make_packages(spec: ApplySpec) -> None:
    from penstock.packaging.build import build  # noqa: PLC0415 - as above
    from penstock.packaging.package_spec import read_packages  # noqa: PLC0415

    packages = [each for file in spec.packages for each in read_packages(file)]
    if packages:
        built = build(packages, spec.build)
        made = sum(each.state != "unchanged" for each in built)
        note(f"{len(built)} packages in {spec.build}, {made} of them made now")


def _agreed(planned: Plan) -> bool:
    """Asks for consent if there is a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return bool(typer.confirm(f"Carry out {len(planned.steps)} steps?"))


def _show(planned: Plan, url: str) -> None:
    rows: list[tuple[object, ...]] = []
    for action in Action:
        groups: dict[tuple[str, str], list[Any]] = {}
        for step in planned.of(action):
            groups.setdefault((step.reason, step.location), []).append(step)
        for (reason, location), steps in groups.items():
            size = sum(step.size for step in steps) or ""
            if len(steps) > _ROWS_MAX:
                rows.append((action.value, f"{len(steps)} of them", location, reason, size))
                continue
            rows += [(action.value, step.name, location, reason, step.size or "") for step in steps]
    if rows:
        print_table(f"plan for {url}", ("step", "what", "where", "because", "bytes"), rows)
    note(_counts(planned))


def _counts(planned: Plan) -> str:
    counts = {action.value: len(planned.of(action)) for action in Action}
    words = [f"{count} {name}" for name, count in counts.items() if count]
    return ", ".join([*words, f"{planned.unchanged} unchanged"])


def _fields(planned: Plan, *, applied: bool) -> dict[str, object]:
    return {
        "applied": applied,
        "unchanged": planned.unchanged,
        "steps": [
            {
                "action": step.action.value,
                "name": step.name,
                "location": step.location,
                "reason": step.reason,
                "bytes": step.size,
            }
            for step in planned.steps
        ],
    }


def _pair(item: str) -> tuple[str, str]:
    name, equals, version = item.partition("=")
    if not (name and equals and version):
        raise CallerError(
            "version-invalid",
            f"--version {item!r} has no package or no version",
            hint="Write PACKAGE=VERSION, as in --version shop=2.",
        )
    return name, version
