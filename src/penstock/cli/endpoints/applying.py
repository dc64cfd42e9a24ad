"""What `penstock apply` observes, and how it carries out a plan: many calls at once, bounded.

An earlier run that was killed may have done a step already, so repeating one changes nothing. The
plan defines the order of steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli.client import SageMaker, if_there
from penstock.cli.endpoints.deploy import (
    WAIT_S_MAX,
    create_unless_there,
    describe,
    heading,
    pause,
    point_endpoint,
    wait_gone,
    wait_in_service,
)
from penstock.cli.endpoints.endpoint_tags import tag_list
from penstock.cli.endpoints.listing import list_all, reading
from penstock.cli.waiting import ShownWait
from penstock.core.apply.plan import (
    Action,
    AppliedEndpointObserved,
    AppliedEndpointSpec,
    ArtifactPlace,
    Plan,
    PlanObserved,
    PlanStep,
    made_for_any,
    stem,
)
from penstock.packaging.stores import PackageStore, open_store
from penstock.packaging.wishes import STACK_TAG, Deployment

if TYPE_CHECKING:
    from penstock.core.apply.plan import Content

#: Concurrent uploads and calls: enough to fill a disk or a network, few for a server.
_THREADS = 8

#: Prefixes of URIs in which a stack's artifacts may lie.
_STORES = ("s3://", "file:///")

Item = TypeVar("Item")
Result = TypeVar("Result")


def look(client: SageMaker, wanted: Deployment, *, prune: bool) -> PlanObserved:
    """The present state of what is wanted; with `prune`, of all that earlier runs made."""
    asked: dict[str, set[str]] = {}
    for place in wanted.artifacts:
        asked.setdefault(place.location, set()).add(place.name)
    whole = set(asked) if prune else set()  #: locations in which all our archives are looked at

    names = [endpoint.name for endpoint in wanted.endpoints]
    stacked = _of_stacks(client, wanted.stacks) if prune else frozenset()
    owners = sorted({stem(name) for name in (*names, *stacked)})
    models = _named(client, "ListModels", "Models", "ModelName", owners)
    configs = _named(client, "ListEndpointConfigs", "EndpointConfigs", "EndpointConfigName", owners)
    reads = reading(client) if prune else {}
    ours = made_for_any(models, {*names, *stacked})
    for uri in (uri for name in ours for uri in reads.get(name, ()) if uri.startswith(_STORES)):
        location, _, archive = uri.rpartition("/")
        if not archive:
            whole.add(f"{location}/")
        asked.setdefault(f"{location}/", set()).update({archive} - {""})
    kept = wanted.locations()

    def stored(location: str) -> tuple[Mapping[str, Content], list[str]]:
        store = open_store(location)
        found = store.contents(frozenset(asked[location]), all_of_ours=location in whole)
        return found, store.left_over() if location in kept else []

    artifacts: dict[ArtifactPlace, Content] = {}
    left_over: list[ArtifactPlace] = []
    for location, (contents, drafts) in _each(stored, asked):
        artifacts |= {ArtifactPlace(location, name): content for name, content in contents.items()}
        left_over += [ArtifactPlace(location, name) for name in drafts]
    return PlanObserved(
        artifacts=artifacts,
        left_over=tuple(left_over),
        endpoints={
            name: seen for name, seen in _each(lambda name: _endpoint(client, name), names) if seen
        },
        models=models,
        configs=configs,
        stack_endpoints=stacked,
        reads=reads,
    )


def carry_out(
    client: SageMaker,
    wanted: Deployment,
    planned: Plan,
    *,
    wait: bool,
    say: Callable[[str], None],
    waiting: ShownWait | None = None,
) -> None:
    """Does the steps, waits for all wanted endpoints, and deletes last.

    Raises the error of the first step that fails, once the steps under way have ended.
    """
    hands = _Hands(client, wanted, planned)
    for action in Action:
        if action is Action.DELETE_ENDPOINT and wait:
            _wait(client, wanted.endpoints, waiting)
        steps = planned.of(action)
        if steps:
            say(f"{action.value}: {len(steps)}")
        for _ in _each(hands.do, steps):
            pass


class _Hands:
    """Carries out single steps."""

    def __init__(self, client: SageMaker, wanted: Deployment, planned: Plan) -> None:
        self._client = client
        self._wanted = wanted
        self._endpoints = {endpoint.name: endpoint for endpoint in wanted.endpoints}
        locations = {*wanted.locations(), *(step.location for step in planned.steps)} - {""}
        self._stores: dict[str, PackageStore] = {one: open_store(one) for one in locations}

    def do(self, step: PlanStep) -> None:
        how: dict[Action, Callable[[PlanStep], object]] = {
            Action.REMOVE_LEFT_OVER: self._remove,
            Action.UPLOAD: self._upload,
            Action.CREATE_MODEL: lambda step: self._create("CreateModel", step),
            Action.CREATE_ENDPOINT_CONFIG: lambda step: self._create("CreateEndpointConfig", step),
            Action.CREATE_ENDPOINT: self._point,
            Action.UPDATE_ENDPOINT: self._point,
            Action.TAG_ENDPOINT: self._tag,
            Action.DELETE_ENDPOINT: self._delete_endpoint,
            Action.DELETE_ENDPOINT_CONFIG: lambda step: self._delete(
                "DeleteEndpointConfig", EndpointConfigName=step.name
            ),
            Action.DELETE_MODEL: lambda step: self._delete("DeleteModel", ModelName=step.name),
            Action.DELETE_ARTIFACT: self._remove,
        }
        how[step.action](step)

    def _remove(self, step: PlanStep) -> None:
        self._stores[step.location].remove(step.name)

    def _upload(self, step: PlanStep) -> None:
        source = self._wanted.sources[ArtifactPlace(step.location, step.name)]
        self._stores[step.location].put(step.name, source)

    def _create(self, operation: str, step: PlanStep) -> None:
        create_unless_there(self._client, operation, **self._wanted.requests[step.name])

    def _point(self, step: PlanStep) -> None:
        wish = self._endpoints[step.name]
        _settle(self._client, wish)
        point_endpoint(self._client, wish.name, wish.config, tags=wish.tags)

    def _tag(self, step: PlanStep) -> None:
        arn = describe(self._client, step.name)["EndpointArn"]
        tags = tag_list(self._endpoints[step.name].tags)
        self._client.sagemaker("AddTags", ResourceArn=arn, Tags=tags)

    def _delete_endpoint(self, step: PlanStep) -> None:
        self._delete("DeleteEndpoint", EndpointName=step.name)
        wait_gone(self._client, step.name)

    def _delete(self, operation: str, **members: str) -> None:
        if_there(self._client, operation, **members)


def _settle(client: SageMaker, wish: AppliedEndpointSpec) -> None:
    """Waits while the endpoint is changing, since it can't be updated meanwhile."""
    deadline = time.monotonic() + WAIT_S_MAX
    while described := describe(client, wish.name, missing_ok=True):
        status = described["EndpointStatus"]
        on_its_way = status != "Deleting" and heading(described) == wish.config
        if status in ("InService", "Failed") or on_its_way:
            return
        pause(deadline, f"endpoint {wish.name} is still {status}")


def _wait(
    client: SageMaker, endpoints: Iterable[AppliedEndpointSpec], waiting: ShownWait | None
) -> None:
    def served(wish: AppliedEndpointSpec) -> dict[str, Any]:
        return wait_in_service(client, wish.name, wish.config, waiting=waiting)

    for wish, _ in _each(served, endpoints):
        if waiting is not None:
            waiting.over(wish.name)


def _endpoint(client: SageMaker, name: str) -> AppliedEndpointObserved | None:
    described = describe(client, name, missing_ok=True)
    if not described:
        return None
    return AppliedEndpointObserved(
        status=described["EndpointStatus"],
        config=heading(described),
        tags=_tags(client, described["EndpointArn"]),
    )


def _of_stacks(client: SageMaker, stacks: set[str]) -> frozenset[str]:
    listed = list_all(client, "ListEndpoints", "Endpoints")
    arns = {str(each["EndpointName"]): str(each["EndpointArn"]) for each in listed}
    return frozenset(
        name
        for name, tags in _each(lambda name: _tags(client, arns[name]), arns)
        if tags.get(STACK_TAG) in stacks
    )


def _tags(client: SageMaker, arn: str) -> Mapping[str, str]:
    """An endpoint's tags; none if it has been deleted."""
    answer = if_there(client, "ListTags", ResourceArn=arn, MaxResults=100) or {"Tags": []}
    return {str(tag["Key"]): str(tag["Value"]) for tag in answer["Tags"]}


def _named(
    client: SageMaker, operation: str, member: str, key: str, owners: Iterable[str]
) -> frozenset[str]:
    """Names of what was made for any of the endpoints, and perhaps of others."""
    return frozenset(
        str(each[key])
        for _, page in _each(
            lambda owner: list_all(client, operation, member, NameContains=owner), owners
        )
        for each in page
    )


def _each(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Runs `work` concurrently; yields results with items. After a failure nothing more is
    started."""
    pool = ThreadPoolExecutor(_THREADS)
    try:
        begun = {pool.submit(work, item): item for item in items}
        for done in as_completed(begun):
            yield begun[done], done.result()
    finally:
        pool.shutdown(cancel_futures=True)
