"""What comparisons of answers found, for the rollouts that are held to an agreement.

The latest rollout of an endpoint, and of each of its inference components and target models, is
remembered after its end, so that people can read why it ended so. The reconciler saves the counts
every 5 s and when it ends, so that the next server goes on with them; a kill loses those after the
last save. They only make a decision later, as pairs that were never compared do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.control.store.compared_pairs import ComparedPairs
from penstock.core.deployment.endpoint_state import EndpointSpec
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec

#: Called with an endpoint, the number of a rollout, and the component whose it is ("": the
#: endpoint's own): outcome -> pairs of answers since this process began, as in
#: `core/rollout/agreement.py`.
Compared = Callable[[str, int, str], Mapping[str, int]]

#: (endpoint, component), without case, and target model; with neither of the last two it is the
#: endpoint's own rollout.
_Key = tuple[str, str, str]


@dataclass(slots=True)
class PairCounter:
    """The pairs of one rollout, over all servers that led it."""

    pairs: ComparedPairs
    saved: ComparedPairs | None = None  #: as it is in the database
    #: What this process had counted at the last look. Only the growth since then is added: of what
    #: it counted in an earlier term the database has a part, and the counts of a removed variant
    #: leave its registry.
    seen: Mapping[str, int] = field(default_factory=dict)

    def add(self, counted: Mapping[str, int]) -> None:
        grown = {name: count - self.seen.get(name, 0) for name, count in counted.items()}
        more = {name: count for name, count in grown.items() if count > 0}
        if more:
            before = self.pairs.counts
            total = {name: before.get(name, 0) + count for name, count in more.items()}
            self.pairs = replace(self.pairs, counts={**before, **total})
        self.seen = dict(counted)


class Agreements:
    """The latest rollouts of what this server leads. `restore` first; from time to time write what
    is `unsaved`, and say so (`saved`)."""

    def __init__(self, compared: Compared) -> None:
        self._compared = compared
        self._latest: dict[_Key, PairCounter] = {}
        #: those that were looked at since they were last found as saved: an ended rollout costs
        #: nothing
        self._looked: dict[_Key, None] = {}

    def restore(self, rows: Iterable[ComparedPairs]) -> None:
        """Goes on from what was saved."""
        for row in rows:
            seen = self._compared(row.endpoint, row.rollout, row.component)
            self._latest[_key_of(row)] = PairCounter(row, saved=row, seen=dict(seen))

    def unsaved(self) -> list[ComparedPairs]:
        """What differs from what is saved."""
        changed = []
        for key in tuple(self._looked):
            counter = self._look(key)
            if counter.pairs == counter.saved:
                del self._looked[key]
            else:
                changed.append(counter.pairs)
        return changed

    def saved(self, rows: Iterable[ComparedPairs]) -> None:
        """These are in the database now."""
        for row in rows:
            if (counter := self._latest.get(_key_of(row))) is not None:
                counter.saved = row

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
        key = desired.endpoint.lower(), component.lower(), model
        known = self._latest.get(key)
        if known is None or known.pairs.rollout != number:
            begun = ComparedPairs(
                endpoint=desired.endpoint, component=component, model=model, rollout=number,
                spec=spec, counts={},
            )  # fmt: skip
            self._latest[key] = PairCounter(begun)
        return AgreementCounts.of(self._look(key).pairs.counts)

    def latest(
        self, endpoint: str, component: str = "", model: str = ""
    ) -> tuple[AgreementSpec, AgreementCounts] | None:
        """What the latest rollout with an agreement was held to, and what was found; None: there
        was none."""
        key = endpoint.lower(), component.lower(), model
        if key not in self._latest:
            return None
        pairs = self._look(key).pairs
        return pairs.spec, AgreementCounts.of(pairs.counts)

    def forget(self, endpoint: str, component: str | None = None) -> None:
        """The component is gone; None: the endpoint is, with all of them."""
        of = (endpoint.lower(),) if component is None else (endpoint.lower(), component.lower())
        for key in [one for one in self._latest if one[: len(of)] == of]:
            del self._latest[key]
            self._looked.pop(key, None)

    def _look(self, key: _Key) -> PairCounter:
        counter = self._latest[key]
        pairs = counter.pairs
        counter.add(self._compared(pairs.endpoint, pairs.rollout, pairs.component))
        self._looked[key] = None
        return counter


def _key_of(row: ComparedPairs) -> _Key:
    return row.endpoint.lower(), row.component.lower(), row.model
