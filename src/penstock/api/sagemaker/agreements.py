"""The tag of an endpoint configuration, or of an inference component, that says what the answers of
its rollout are held to: `penstock:agreement`, for any AWS client. Its words are those of
`core/rollout/agreement_words.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.api.sagemaker.context import SagemakerContext, invalid
from penstock.control.store.records import NotFound
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.deployment.capacity_spec import ComponentRevision
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.deployment.endpoint_state import DELETING
from penstock.core.rollout.agreement import AgreementSpec
from penstock.core.rollout.agreement_words import agreement_of
from penstock.core.rollout.policy import ALL_AT_ONCE, RolloutPolicy
from penstock.errors import CallerError

TAG: Final = "penstock:agreement"


def agreeing(
    policy: RolloutPolicy | None,
    tags: Mapping[str, str],
    old: DeploymentSpec,
    new: DeploymentSpec,
) -> RolloutPolicy | None:
    """The policy with the agreement that the tags ask for, if they do.

    Raises ValidationException.
    """
    if TAG not in tags:
        return policy
    spec = _said(tags[TAG])
    if policy is None or policy.kind == ALL_AT_ONCE:
        raise _invalid(
            "answers can be compared while two generations serve: update with a DeploymentConfig"
            " whose traffic routing is of Type CANARY or LINEAR, or with RollingUpdatePolicy."
        )
    for one in (old, new):
        if one.takes_components:
            raise _invalid(
                "it is for variants with a model of their own. Of inference components, give it to"
                " the component."
            )
        if one.asynchronous is not None:
            raise _invalid("answers of asynchronous endpoints are not compared.")
        if any(each.model is not None and each.model.multi_model for each in one.variants):
            raise _invalid("answers of multi-model variants are not compared.")
    return replace(policy, agreement=spec)


def agreeing_revision(
    revision: ComponentRevision,
    tags: Mapping[str, str],
    endpoint: DeploymentSpec,
    *,
    copies: int,
    wall: float,
) -> ComponentRevision:
    """The new revision of a component with the agreement that the tags ask for, if they do.

    Args:
        revision: with its rollout.
        tags: of the component.
        endpoint: that it is on.
        copies: that the component should have; of an adapter: its base.
        wall: s.

    Raises ValidationException.
    """
    if TAG not in tags:
        return revision
    spec = _said(tags[TAG])
    if not revision.batch:
        raise _invalid(
            "answers can be compared while two revisions serve: update with a DeploymentConfig that"
            " has RollingUpdatePolicy."
        )
    if not copies:
        whose = f" of its base {revision.base}" if revision.base else ""
        raise _invalid(
            f"without a copy{whose} there are no answers to compare: raise CopyCount first."
        )
    if endpoint.asynchronous is not None:
        raise _invalid("answers of asynchronous endpoints are not compared.")
    return replace(revision, agreement=spec, rollout=int(wall * 1000))


async def check_scorer(
    context: SagemakerContext, spec: AgreementSpec | None, endpoint: str
) -> AgreementSpec | None:
    """The agreement, with its scorer's name as that endpoint writes it.

    `endpoint`: the one that is updated. Raises ValidationException: what it names can't be its
    scorer.
    """
    try:
        return None if spec is None else await with_scorer(context.database, spec, endpoint)
    except CallerError as error:
        raise _invalid(error.message) from error


async def with_scorer(database: StoreThread, spec: AgreementSpec, endpoint: str) -> AgreementSpec:
    """As `check_scorer`; raises CallerError (`agreement-invalid`)."""
    name = spec.scorer
    if not name:
        return spec
    if name.lower() == endpoint.lower():
        raise _no_scorer(f"endpoint {name!r} can't be the scorer of its own answers.")
    try:
        record = await database.call(Store.describe_endpoint, name)
    except NotFound as error:
        raise _no_scorer(f"there is no endpoint {name!r} to be the scorer.") from error
    if record.active is None or record.status == DELETING:
        raise _no_scorer(f"endpoint {name!r} can't be the scorer: it is {record.status}.")
    if record.active.takes_components or any(
        one.model is not None and one.model.multi_model for one in record.active.variants
    ):
        raise _no_scorer(
            f"endpoint {name!r} can't be the scorer: its requests have to name a component or a"
            " target model, and a scorer's name none."
        )
    return replace(spec, scorer=record.name)


def _no_scorer(cause: str) -> CallerError:
    return CallerError(
        "agreement-invalid", cause, hint="Name an endpoint that has one model and serves."
    )


def _said(words: str) -> AgreementSpec:
    try:
        return agreement_of(words)
    except CallerError as error:
        raise _invalid(f"{error.message}.") from error


def _invalid(cause: str) -> Exception:
    return invalid(f"the tag {TAG}: {cause}")
