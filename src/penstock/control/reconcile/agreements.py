"""What comparisons of answers found, for the rollouts that are held to an agreement.

Counts are those of this server since it began. The latest rollout of an endpoint, and of each of
its inference components and target models, is remembered after its end, so that people can read why
it ended so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.core.deployment.endpoint_state import EndpointSpec
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec

#: Called with an endpoint, the number of a rollout, and the component whose it is ("": the
#: endpoint's own): outcome -> pairs of answers since this server began, as in
#: `core/rollout/agreement.py`.
Compared = Callable[[str, int, str], Mapping[str, int]]


class Agreements:
    """By endpoint and component, without case, and by target model; with neither of the two it is
    the endpoint's own rollout."""

    def __init__(self, compared: Compared) -> None:
        self._compared = compared
        #: endpoint -> (component, target model) -> its latest rollout with an agreement: that, and
        #: its number
        self._latest: dict[str, dict[tuple[str, str], tuple[AgreementSpec, int]]] = {}

    def of_endpoint(self, desired: EndpointSpec) -> AgreementCounts | None:
        """What was found in the rollout under way; None: it has no agreement."""
        policy = desired.target.rollout if desired.target is not None else None
        if policy is None or policy.agreement is None or desired.progress is None:
            return None
        return self._counted(desired, policy.agreement, desired.progress.number)

    def of_components(self, desired: EndpointSpec) -> dict[str, AgreementCounts]:
        """Component -> what was found in the rollout of its new revision."""
        return {
            one.name: self._counted(
                desired, revision.agreement, revision.rollout, component=one.name
            )
            for one in desired.components
            if (revision := one.compared) is not None and revision.agreement is not None
        }

    def of_targets(self, desired: EndpointSpec) -> dict[str, AgreementCounts]:
        """Target model -> what was found in the rollout of another artifact for it."""
        return {
            one.target: self._counted(
                desired, one.policy.agreement, one.progress.number, model=one.target
            )
            for one in desired.targets
            if one.policy is not None and one.policy.agreement is not None and one.progress
        }

    def _counted(
        self,
        desired: EndpointSpec,
        spec: AgreementSpec,
        number: int,
        *,
        component: str = "",
        model: str = "",
    ) -> AgreementCounts:
        known = self._latest.setdefault(desired.endpoint.lower(), {})
        known[component.lower(), model] = spec, number
        return AgreementCounts.of(self._compared(desired.endpoint, number, component))

    def latest(
        self, endpoint: str, component: str = "", model: str = ""
    ) -> tuple[AgreementSpec, AgreementCounts] | None:
        """What the latest rollout with an agreement was held to, and what was found; None: there
        was none since this server began. Names are as they were created."""
        found = self._latest.get(endpoint.lower(), {}).get((component.lower(), model))
        if found is None:
            return None
        return found[0], AgreementCounts.of(self._compared(endpoint, found[1], component))

    def forget(self, endpoint: str, component: str | None = None) -> None:
        """The component is gone; None: the endpoint is, with all of them."""
        if component is None:
            self._latest.pop(endpoint.lower(), None)
        else:
            self._latest.get(endpoint.lower(), {}).pop((component.lower(), ""), None)
