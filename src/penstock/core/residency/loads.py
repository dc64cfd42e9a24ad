"""Which loads begin, in which order, and for which of them room is made first; which requests are
refused because none can begin for them.

Loads wait in one queue: models that callers wait for, by the time that their first caller has
waited; then explicitly requested models; then those that are expected to be called. A model that is
only reloaded because its artifact was replaced evicts no other. At most `loads_max` artifacts are
fetched at once, and as many models load.

A load begins when what is measured, what running loads will still take and what it needs fit into
the budget, after leaving models have left: room is made first, and confirmed. No model is evicted
unless enough of them may be. A model that can't get room yet (all others are busy) lets smaller
ones behind it go ahead eight times; then they wait for it for a while, and so on in turns: neither
side starves.

A model's memory is the difference between what the operating system measures before and after its
load. So a model of unknown size loads alone, and while it waits for that no load behind it begins:
otherwise a steady stream of loads would keep it waiting for ever. Models of known size load side by
side.

Requests are refused at once, where waiting would not help; later, when their deadline can't be met
any more; and all waiting ones when a load fails, for as long as the failure is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from penstock.core.residency import actions as why
from penstock.core.residency.account import Account
from penstock.core.residency.actions import Action, Load, Prepare, RefuseParked, Unload
from penstock.core.residency.evictor import Evictor, Shortage
from penstock.core.residency.model import Failure, RoomState, State, Table, TargetModel
from penstock.core.residency.spec import NOTHING, Footprint, ResidencySpec

_OVERTAKEN_MAX: Final = 8
#: Largest factor by which a model's size changes the expected time of its load.
_SIZES_APART: Final = 4.0
#: s that loads wait for a model in front of them that was overtaken too often.
_HELD_S: Final = 10.0


class Loads:
    def __init__(
        self, spec: ResidencySpec, table: Table, account: Account, evictor: Evictor
    ) -> None:
        self._spec = spec
        self._table = table
        self._account = account
        self._evictor = evictor
        self.wake_at = inf  #: s; when more models may be evicted than now
        #: a load waits for models to be idle, or to pass their minimum residency
        self.blocked = False
        self._usual_load_s = 0.0  #: s; moving average of loads, for models that were never loaded
        self._usual_bytes = 0.0  #: moving average of the bytes that these loads took

    # the queue

    def want(self, model: TargetModel, now: float) -> None:
        """The model is to be loaded; no effect if it is queued or loading already."""
        if model.state is State.UNLOADED:
            self._table.move(model, State.QUEUED, now=now)

    def drop(self, model: TargetModel, now: float) -> None:
        """Nobody needs it any more. A step under way is finished first."""
        if model.state in (State.QUEUED, State.PREPARED):
            self._table.move(model, State.UNLOADED, now=now)
            model.fresh()

    def in_order(self) -> list[TargetModel]:
        """The queue, the next load first."""
        return sorted(
            self._table.queue.values(), key=lambda one: (one.urgency, one.since, one.name)
        )

    def load_s(self, model: TargetModel) -> float:
        """Expected s of its load: by its earlier loads, or else by others'; 0 = not known.

        Larger models take longer, but sizes of different kinds are hard to compare: they count
        within bounds.
        """
        if model.load_s is not None:
            return model.load_s
        share = (model.need or NOTHING).host_bytes / max(self._usual_bytes, 1.0)
        return self._usual_load_s * min(max(share, 1 / _SIZES_APART), _SIZES_APART)

    def learn(self, model: TargetModel, load_s: float) -> None:
        load_s = model.learn_load(load_s)
        weight = 1 / 8 if self._usual_load_s else 1.0
        self._usual_load_s += weight * (load_s - self._usual_load_s)
        self._usual_bytes += weight * ((model.size or NOTHING).host_bytes - self._usual_bytes)

    # what begins now

    def begin(self, *, now: float) -> list[Action]:
        """Begins all loads that may begin, in order; sets `wake_at`."""
        self.wake_at = inf
        self.blocked = False
        if not self._table.queue:
            return []
        order = self.in_order()
        return self._prepare(order, now) + self._load(order, now)

    def _prepare(self, order: list[TargetModel], now: float) -> list[Action]:
        places = self._spec.loads_max - sum(one.state is State.PREPARING for one in order)
        queued = [model for model in order if model.state is State.QUEUED]
        actions: list[Action] = []
        for model in queued[: max(places, 0)]:
            reason = why.REPLACED if model.stale else model.cause
            self._table.move(model, State.PREPARING, now=now)
            model.story.tell("prepare", reason, now=now)
            actions.append(Prepare(model.name, reason))
        return actions

    def _load(self, order: list[TargetModel], now: float) -> list[Action]:
        actions: list[Action] = []
        ahead, ahead_count = NOTHING, 0
        blocked: list[TargetModel] = []  #: models in front that can't get room yet
        turn_kept = False  #: a model in front has room, and waits until it may load alone
        for model in order:
            if model.state is not State.PREPARED or model.need is None:
                continue
            if len(self._table.loading) + ahead_count >= self._spec.loads_max:
                break
            if self._held(blocked, now):
                break
            missing = self._account.short_of(ahead + model.need)
            shortage = Shortage(missing, self._account.models_over(1 + ahead_count))
            if shortage.is_any:
                begun = self._make_room(model, shortage, now)
                actions += begun
                if model.room is not RoomState.PROMISED:
                    if model.room is RoomState.BLOCKED:
                        blocked.append(model)
                        self.blocked = True
                    continue
            elif self._account.has_room(model.need):
                turn_kept = turn_kept or not self._may_begin(model)
                if not turn_kept:
                    actions.append(self._start(model, now))
                    for other in blocked:
                        other.passed()
                    continue
            else:
                model.has_room(RoomState.PROMISED)
            ahead, ahead_count = ahead + model.need, ahead_count + 1
        return actions

    def _may_begin(self, model: TargetModel) -> bool:
        """Whether it may load beside the models that load now."""
        return all(one.need_known for one in (model, *self._table.loading.values())) or (
            not self._table.loading
        )

    def _held(self, blocked: list[TargetModel], now: float) -> bool:
        """Whether loads behind `blocked` wait, because it was overtaken too often."""
        held = False
        for model in blocked:
            if model.overtaken < _OVERTAKEN_MAX:
                continue
            until = now + _HELD_S if model.held_until is None else model.held_until
            if now >= until:
                model.hold(None)
            else:
                model.hold(until)
                held = True
                self.wake_at = min(self.wake_at, until)
        return held

    def _start(self, model: TargetModel, now: float) -> Load:
        assert model.need is not None
        reason = why.ROOM_MADE if model.room is RoomState.PROMISED else model.cause
        self._table.move(model, State.LOADING, now=now, reason=model.cause)
        self._account.load_begins(model.name, model.need)
        model.story.tell("load", reason, now=now)
        return Load(model.name, reason, alone=not model.need_known)

    # room

    def _make_room(self, model: TargetModel, shortage: Shortage, now: float) -> list[Action]:
        """Evicts enough models, and reserves their room for it; otherwise it keeps waiting."""
        model.has_room(RoomState.UNKNOWN)
        asked = model.asked
        refused = self._never(model, now)
        if refused is not None:
            return [refused] if asked else []
        if not asked and model.expected == why.REPLACED:
            return self._unexpected(model, now)
        due = model.given_up_at(self.load_s(model))
        victims, again_at = self._evictor.victims(shortage, now=now, due=due, asked=asked)
        if victims:
            model.has_room(RoomState.PROMISED)
            return self.evict(victims, why.LEAST_RECENTLY_USED, now=now, made_room_for=model.name)
        if again_at == inf and not asked:
            return self._unexpected(model, now)
        model.has_room(RoomState.BLOCKED)
        self.wake_at = min(self.wake_at, again_at)
        if model.calls and self._waits_for_itself(model):
            return [self._refuse_calls(model, now)]
        return []

    def _unexpected(self, model: TargetModel, now: float) -> list[Action]:
        """Gives up a load that nobody waits for and that has no room."""
        model.expect("")
        self.drop(model, now)
        return []

    def _never(self, model: TargetModel, now: float) -> RefuseParked | None:
        """The refusal of a model for which waiting does not help; None if it may.

        Waiting does not help if pinned models hold what it needs, or if no other model can ever be
        evicted.
        """
        assert model.need is not None
        held, pinned = self._account.base, 0
        for other in self._table.resident.values():
            if other.pinned:
                held += self._account.charge(other.name)
                pinned += 1
        limit = self._spec.models_max
        pins = not (held + model.need).within(self._account.budget) or (limit and pinned >= limit)
        if not pins and self._account.models > pinned:
            return None
        message = (
            f"model {model.name} needs {bytes_of(model.need)}; of the budget of "
            f"{bytes_of(self._account.budget)}, {bytes_of(self._account.committed)} are taken, "
            f"and no model may go: {pinned} are pinned"
        )
        self.drop(model, now)
        retry_after_s = None if pins else self._spec.failure_s
        return self._refuse_all(model, why.NO_ROOM, message, retry_after_s, now=now)

    def _waits_for_itself(self, model: TargetModel) -> bool:
        """Whether its calls can't end, as the models that wait for them hold the room.

        A model goes on once all that it waits for is loaded. What can be loaded is found step by
        step: first what fits beside all who wait, then what fits once those have gone on (the
        reduction of `core.request.nested_calls`, with memory in the place of lanes).
        """
        left = {one.name: one for one in self._table.waiting.values() if one.calls}
        while model.name in left:
            held = _held_by_calls(left.values())
            fits = [name for name, one in left.items() if self._fits_beside(held, one)]
            if not fits:
                return True
            for name in fits:
                del left[name]
        return False

    def _fits_beside(self, held: set[str], model: TargetModel) -> bool:
        """Whether it could be loaded if all others went but those that wait for calls."""
        if model.need is None or self._table.loading:  # it is not known yet
            return True
        others = [
            one for one in self._table.resident.values() if not one.pinned and one.name not in held
        ]
        freed = sum((one.size or NOTHING for one in others), NOTHING)
        enough = self._account.short_of(model.need).within(freed)
        return enough and self._account.models_over(1) <= len(others)

    def _refuse_calls(self, model: TargetModel, now: float) -> RefuseParked:
        assert model.need is not None
        held = _held_by_calls(self._table.waiting.values())
        message = (
            f"model {model.name} needs {bytes_of(model.need)}, and what waits for calls keeps its "
            f"memory: {', '.join(sorted(held))}; the budget is {bytes_of(self._account.budget)}"
        )
        for ends_at, waiting in list(model.calls):
            model.unpark(ends_at, waiting)
        self._table.look_waiting(model)
        model.story.tell("refused", why.NO_ROOM, now=now, text=message)
        if not model.wanted:
            self.drop(model, now)
        return RefuseParked(model.name, why.NO_ROOM, message, calls_only=True)

    def evict(
        self,
        victims: Sequence[TargetModel],
        reason: str,
        *,
        now: float,
        made_room_for: str = "",
    ) -> list[Action]:
        for model in victims:
            model.evicted()
        return [self.unload(one, reason, now=now, made_room_for=made_room_for) for one in victims]

    def unload(
        self, model: TargetModel, reason: str, *, now: float, made_room_for: str = ""
    ) -> Unload:
        """Unloads an idle model, for any reason."""
        self._table.move(model, State.LEAVING, now=now, reason=reason)
        self._account.leaves(model.name)
        cost_s = model.reload_s
        model.story.tell("unload", reason, now=now, made_room_for=made_room_for, cost_s=cost_s)
        return Unload(model.name, reason, made_room_for)

    # refusals

    def refused_at_once(
        self, known: TargetModel, now: float, deadline: float | None
    ) -> RefuseParked | None:
        name = known.name
        failure = known.refused(now)
        if failure is not None:
            retry_after_s = None if failure.until == inf else failure.until - now
            return RefuseParked(
                name, failure.reason, failure.message, retry_after_s, newest_only=True
            )
        ready_at = known.ready_at(now, self.load_s(known))
        if len(known.parked) >= self._spec.waiting_max:
            return RefuseParked(
                name,
                why.TOO_MANY_WAITING,
                f"{len(known.parked)} requests wait for model {name} to be loaded",
                ready_at - now,
                newest_only=True,
            )
        if deadline is None or (now < deadline and ready_at <= deadline):
            return None
        message = (
            f"loading model {name} is expected to take {ready_at - now:.1f} s, "
            f"and the deadline is in {max(deadline - now, 0.0):.1f} s"
        )
        return RefuseParked(name, why.NOT_IN_TIME, message, ready_at - now, newest_only=True)

    def refuse_late(self, known: TargetModel, now: float) -> list[Action]:
        """Refuses its parked requests whose deadline can't be met any more."""
        load_s = self.load_s(known)
        due = known.unpark_late(now, load_s)
        if not due:
            return []
        retry_after_s = known.ready_at(now, load_s) - now
        reason, message = why.NOT_IN_TIME, f"model {known.name} is not loaded before the deadline"
        blocked = known.room is RoomState.BLOCKED
        if blocked:
            reason = why.NO_ROOM
            message = f"all models that could make room for {known.name} answer or are pinned"
        if known.parked:
            known.story.tell("refused", reason, now=now, text=message)
            return [RefuseParked(known.name, reason, message, retry_after_s, deadline_max=due[-1])]
        wished = known.wished
        refused = self._refuse_all(known, reason, message, retry_after_s, now=now)
        if wished:
            known.wish()
        if not (blocked or known.dismissed):
            known.expect(why.RETRY_EXPECTED)
        if not known.wanted:
            self.drop(known, now)
        return [refused]

    def remember(
        self, known: TargetModel, failure: Failure, retry_after_s: float | None, now: float
    ) -> list[Action]:
        """Refuses all its waiting requests, and further ones until `failure` is over."""
        known.fail(failure)
        asked = known.asked
        refused = self._refuse_all(known, failure.reason, failure.message, retry_after_s, now=now)
        return [refused] if asked else []

    def refuse_too_large(self, known: TargetModel, now: float) -> RefuseParked:
        assert known.need is not None
        message = (
            f"model {known.name} needs {bytes_of(known.need)}, and the budget is "
            f"{bytes_of(self._spec.budget)}, of which {bytes_of(self._account.base)} are taken "
            f"without any model"
        )
        known.fail(Failure(inf, why.LARGER_THAN_BUDGET, message))
        self.drop(known, now)
        return self._refuse_all(known, why.LARGER_THAN_BUDGET, message, None, now=now)

    def refuse_quarantined(self, known: TargetModel, now: float) -> RefuseParked | None:
        """The refusal of an explicit load of a model in quarantine; None where it is in none."""
        failure = known.refused(now)
        if failure is None or failure.reason != why.QUARANTINED:
            return None
        known.story.tell("refused", why.QUARANTINED, now=now, text=failure.message)
        return RefuseParked(known.name, why.QUARANTINED, failure.message, failure.until - now)

    def quarantine(
        self, known: TargetModel, message: str, now: float, *, seconds: float | None = None
    ) -> list[Action]:
        left_alone_s = self._spec.quarantine_s if seconds is None else seconds
        known.story.tell("quarantined", why.QUARANTINED, now=now, text=message)
        failure = Failure(now + left_alone_s, why.QUARANTINED, message)
        return self.remember(known, failure, left_alone_s, now)

    def _refuse_all(
        self,
        model: TargetModel,
        reason: str,
        message: str,
        retry_after_s: float | None,
        *,
        now: float,
    ) -> RefuseParked:
        """Removes all its parked requests, and any explicit request to load it."""
        model.unpark_all()
        self._table.look_waiting(model)
        model.unwant()
        model.story.tell("refused", reason, now=now, text=message)
        return RefuseParked(model.name, reason, message, retry_after_s)


def _held_by_calls(called: Iterable[TargetModel]) -> set[str]:
    """The models that wait for calls to these."""
    return {name for one in called for _, callers in one.calls for name in callers}


def bytes_of(footprint: Footprint) -> str:
    """For messages: names the accelerator only where it is used."""
    host = f"{footprint.host_bytes / 2**20:.0f} MiB"
    if not footprint.accelerator_bytes:
        return host
    return f"{host} and {footprint.accelerator_bytes / 2**20:.0f} MiB of accelerator memory"
