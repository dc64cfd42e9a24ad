"""The tag of an endpoint configuration, or of an inference component, that says what the answers of
its rollout are held to: `penstock:agreement`, for any AWS client. Its words are those of
`core/rollout/agreement_words.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.api.sagemaker.context import invalid
from penstock.core.deployment.capacity_spec import ComponentRevision
from penstock.core.deployment.deployment import DeploymentSpec
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
        copies: that the component should have.
        wall: s.

    Raises ValidationException.
    """
    if TAG not in tags:
        return revision
    spec = _said(tags[TAG])
    if revision.base:
        raise _invalid(
            "answers of adapters are not compared, as they are replaced on all copies of their base"
            " at once. Delete the tag."
        )
    if not revision.batch:
        raise _invalid(
            "answers can be compared while two revisions serve: update with a DeploymentConfig that"
            " has RollingUpdatePolicy."
        )
    if not copies:
        raise _invalid("without a copy there are no answers to compare: raise CopyCount first.")
    if endpoint.asynchronous is not None:
        raise _invalid("answers of asynchronous endpoints are not compared.")
    return replace(revision, agreement=spec, rollout=int(wall * 1000))


def _said(words: str) -> AgreementSpec:
    try:
        return agreement_of(words)
    except CallerError as error:
        raise _invalid(f"{error.message}.") from error


def _invalid(cause: str) -> Exception:
    return invalid(f"the tag {TAG}: {cause}")
