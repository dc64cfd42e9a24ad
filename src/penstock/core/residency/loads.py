"""Which loads begin, in which order, and for which of them room is made first.

Loads wait in one queue: models that callers wait for, by how long the first of them has waited;
then models that were wished for; then those whose callers were told to come again; guesses last.
As many artifacts are fetched at once as `loads_max`, and as many models load; of each, one is kept
free of guesses where there are two.

A load begins when what is measured, what running loads will still take and what it needs fit into
the budget, after those who leave have left, and beside whom it may (`side_by_side.py`): room is
made first, and confirmed. Nobody is asked to
leave unless enough may go. A model whose room can't be had yet (everything is answering) lets
smaller ones behind it go ahead eight times; then they wait for it for a while, and so on by turns:
neither starves.
"""

from __future__ import annotations

from math import inf

from penstock.core.residency import actions as why
from penstock.core.residency.account import Account
from penstock.core.residency.actions import Action, Load, Prepare, RefuseParked, Unload
from penstock.core.residency.contest import any_missing
from penstock.core.residency.evictor import Evictor
from penstock.core.residency.model import State, TargetModel
from penstock.core.residency.side_by_side import SideBySide
from penstock.core.residency.spec import NOTHING, Footprint, ResidencySpec
from penstock.core.residency.table import Table
from penstock.core.residency.victims import EvictionCandidate, Shortage
from penstock.core.residency.youth import stays_until

_OVERTAKEN_MAX = 8
#: How many times longer, or shorter, a load is expected to take because of a model's size.
_SIZES_APART = 4.0
#: How long loads behind a model that was overtaken so often wait for it.
_HELD_S = 10.0
#: A guess may evict what is worth at most this share of it.
_GUESS_SHARE = 0.25
#: Guesses that evict hold at most one part in so many: they are early, and take room from others.
_GUESSES_SHARE = 8
#: Nor do they evict while more than one loaded model in so many is too young to go.
_YOUNG_SHARE = 4
_URGENCY_GUESS = 3


class Loads:
    def __init__(
        self, spec: ResidencySpec, table: Table, account: Account, evictor: Evictor
    ) -> None:
        self._spec = spec
        self._table = table
        self._account = account
        self._evictor = evictor
        self.queue: dict[str, TargetModel] = {}  #: queued, being prepared, or prepared
        self.preparing = 0
        self.running = SideBySide()
        self.wake_at = inf  #: when more may go than now
        self.blocked = False  #: a load waits for models to be idle, or old enough
        self._usual_load_s = 0.0  #: of the last loads, for models that were never loaded
        self._usual_bytes = 0.0  #: that these took

    # the queue

    def want(self, model: TargetModel) -> None:
        """It is to be loaded, if it is not on its way already."""
        if model.state is State.UNLOADED:
            model.state = State.QUEUED
            model.overtaken, model.held_until = 0, None
            self.queue[model.name] = model

    def drop(self, model: TargetModel) -> None:
        """Nobody wants it any more. What was begun is finished first."""
        if model.state in (State.QUEUED, State.PREPARED):
            self.leave_queue(model)
            model.state = State.UNLOADED
            model.stale = False

    def may_guess(self, model: TargetModel) -> bool:
        """Whether fetching it for a guess is not in vain from the start."""
        return self._evictor.by_value or self._account.has_room(model.size or NOTHING)

    def leave_queue(self, model: TargetModel) -> None:
        self.queue.pop(model.name, None)
        model.promised = model.blocked = False

    def in_order(self) -> list[TargetModel]:
        """Who is next, first."""
        return sorted(self.queue.values(), key=_turn)

    def load_s(self, model: TargetModel) -> float:
        """What its load is expected to take: by its last ones, else as others; 0 = not known.

        A larger model takes longer, but sizes say little across kinds: they count within bounds.
        """
        if model.load_s is not None:
            return model.load_s
        share = (model.need or NOTHING).host_bytes / max(self._usual_bytes, 1.0)
        return self._usual_load_s * min(max(share, 1 / _SIZES_APART), _SIZES_APART)

    def learn(self, model: TargetModel, load_s: float) -> None:
        model.learn_load(load_s)
        weight = 1 / 8 if self._usual_load_s else 1.0
        self._usual_load_s += weight * (load_s - self._usual_load_s)
        self._usual_bytes += weight * ((model.size or NOTHING).host_bytes - self._usual_bytes)

    # what begins now

    def begin(self, *, now: float) -> list[Action]:
        """Whatever may begin, in order; sets `wake_at`."""
        self.wake_at = inf
        self.blocked = False
        loads_max = self._spec.loads_max
        if not self.queue or (len(self.running) >= loads_max and self.preparing >= loads_max):
            return []
        order = self.in_order()
        return self._prepare(order, now) + self._load(order, now)

    def _prepare(self, order: list[TargetModel], now: float) -> list[Action]:
        actions: list[Action] = []
        for model in order:
            if model.state is not State.QUEUED:
                continue
            if self.preparing >= self._limit(model) or _guess_behind(model, order):
                break
            self.preparing += 1
            model.state = State.PREPARING
            model.phase_at = now
            reason = why.REPLACED if model.stale else model.cause
            model.stale = False
            model.story.tell("prepare", reason, now=now)
            actions.append(Prepare(model.name, reason))
        return actions

    def _load(self, order: list[TargetModel], now: float) -> list[Action]:
        actions: list[Action] = []
        ahead, ahead_count = NOTHING, 0
        blocked: list[TargetModel] = []  #: those before it whose room can't be had yet
        turn_kept = False  #: one before it has room, and waits until it may load alone
        for model in order:
            if model.state is not State.PREPARED or model.need is None:
                continue
            if len(self.running) + ahead_count >= self._limit(model) or _guess_behind(model, order):
                break
            if self._held(blocked, now):
                break
            shortage = self._shortage(ahead + model.need, 1 + ahead_count)
            if any_missing(shortage):
                begun = self._make_room(model, shortage, now)
                actions += begun
                if not model.promised:
                    if model.blocked:
                        blocked.append(model)
                        self.blocked = True
                    continue
            elif self._account.has_room(model.need):
                turn_kept = turn_kept or not self.running.may_begin(known=model.need_known)
                if not turn_kept:
                    actions.append(self._start(model, now))
                    for other in blocked:
                        other.overtaken += 1
                    continue
            else:
                model.promised = True
            ahead, ahead_count = ahead + model.need, ahead_count + 1
        return actions

    def _limit(self, model: TargetModel) -> int:
        """How many may be on their way at once, for it to begin."""
        if model.urgency < _URGENCY_GUESS:
            return self._spec.loads_max
        return max(1, self._spec.loads_max - 1)

    def _shortage(self, need: Footprint, count: int) -> Shortage:
        return Shortage(self._account.short_of(need), self._account.models_over(count))

    def _held(self, blocked: list[TargetModel], now: float) -> bool:
        """Whether those behind `blocked` wait, because it was overtaken too often."""
        held = False
        for model in blocked:
            if model.overtaken < _OVERTAKEN_MAX:
                continue
            if model.held_until is None:
                model.held_until = now + _HELD_S
            if now >= model.held_until:
                model.overtaken, model.held_until = 0, None
            else:
                held = True
                self.wake_at = min(self.wake_at, model.held_until)
        return held

    def _start(self, model: TargetModel, now: float) -> Load:
        assert model.need is not None
        reason = why.ROOM_MADE if model.promised else model.cause
        model.load_reason = model.cause
        self.leave_queue(model)
        self.running.begins(model.name, known=model.need_known)
        model.state = State.LOADING
        model.phase_at = now
        self._account.load_begins(model.name, model.need)
        self._table.contest.loads()
        model.story.tell("load", reason, now=now)
        return Load(model.name, reason, alone=not model.need_known)

    # room

    def _make_room(self, model: TargetModel, shortage: Shortage, now: float) -> list[Action]:
        """Unloads what is enough for it, and promises it the place; else it stays where it was."""
        model.promised = model.blocked = False
        asked = bool(model.parked) or model.wished
        refused = self._never(model, now)
        if refused is not None:
            return [refused] if asked else []
        guess = model.urgency == _URGENCY_GUESS
        due = inf if guess else model.given_up_at(self.load_s(model))
        victims, again_at = self._evictor.victims(shortage, now=now, due=due, asked=asked)
        if guess and not self._worth_it(model, victims, now):
            model.prefetched = False
            self.drop(model)
            return []
        if not victims:
            if again_at == inf and not asked:
                model.retry_expected = False
                self.drop(model)
                return []
            model.blocked = True
            self.wake_at = min(self.wake_at, again_at)
            return []
        model.promised = True
        return self.unload(victims, self._evictor.reason, now=now, made_room_for=model.name)

    def _worth_it(self, model: TargetModel, victims: list[EvictionCandidate], now: float) -> bool:
        """Whether a guess may evict them: only by value, and what is worth far less."""
        if not victims or not self._evictor.by_value:
            return False
        loss = sum(victim.loss for victim in victims)
        worth = _GUESS_SHARE * self._evictor.candidate(model, now=now).loss
        return loss <= worth and self._guesses_are_few(model, now)

    def _guesses_are_few(self, model: TargetModel, now: float) -> bool:
        """Whether guesses hold little, and the cache is not so busy that all of it is young."""
        guessed, young_count = NOTHING, 0
        for other in self._table.recency.values():
            young = now < stays_until(self._spec, other)
            young_count += young
            if other.guessed_hits is not None and (young or other.hits == other.guessed_hits):
                guessed += self._account.charge(other.name)
        if _YOUNG_SHARE * young_count > len(self._table.recency):
            return False
        if guessed == NOTHING or model.need is None:
            return True
        total, budget = guessed + model.need, self._account.budget
        return (
            total.host_bytes * _GUESSES_SHARE <= budget.host_bytes
            and total.accelerator_bytes * _GUESSES_SHARE <= budget.accelerator_bytes
        )

    def _never(self, model: TargetModel, now: float) -> RefuseParked | None:
        """Said at once of a model for which waiting does not help.

        Pinned models hold what it needs, or there is no other model that could ever go.
        """
        assert model.need is not None
        held, pinned = self._account.base, 0
        for other in self._table.recency.values():
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
        self.drop(model)
        retry_after_s = None if pins else self._spec.failure_s
        return refuse_all(self._table, model, why.NO_ROOM, message, retry_after_s, now=now)

    def unload(
        self, victims: list[EvictionCandidate], reason: str, *, now: float, made_room_for: str = ""
    ) -> list[Action]:
        actions: list[Action] = []
        for victim in victims:
            model = self._table.models[victim.name]
            model.evictions += 1
            actions.append(self.unload_one(model, reason, now=now, made_room_for=made_room_for))
        return actions

    def unload_one(
        self, model: TargetModel, reason: str, *, now: float, made_room_for: str = ""
    ) -> Unload:
        """An idle model, for whatever reason."""
        model.state = State.LEAVING
        model.drains = ""
        model.unload_reason = reason
        self._table.ready.discard(model.name)
        self._table.recency.pop(model.name, None)
        self._account.leaves(model.name)
        cost_s = model.reload_s
        model.story.tell("unload", reason, now=now, made_room_for=made_room_for, cost_s=cost_s)
        return Unload(model.name, reason, made_room_for)


def _guess_behind(model: TargetModel, order: list[TargetModel]) -> bool:
    """A guess while anybody waits: it takes neither a place nor room before them."""
    return model.urgency == _URGENCY_GUESS and order[0].urgency < _URGENCY_GUESS


def _turn(model: TargetModel) -> tuple[int, float, str]:
    return model.urgency, model.since, model.name


def refuse_all(
    table: Table,
    model: TargetModel,
    reason: str,
    message: str,
    retry_after_s: float | None,
    *,
    now: float,
) -> RefuseParked:
    """Nobody waits for it afterwards, and nobody wishes for it."""
    model.parked.clear()
    table.waiting.pop(model.name, None)
    model.wished = model.retry_expected = model.prefetched = False
    model.story.tell("refused", reason, now=now, text=message)
    return RefuseParked(model.name, reason, message, retry_after_s)


def bytes_of(footprint: Footprint) -> str:
    """For messages: the accelerator only where there is any."""
    host = f"{footprint.host_bytes / 2**20:.0f} MiB"
    if not footprint.accelerator_bytes:
        return host
    return f"{host} and {footprint.accelerator_bytes / 2**20:.0f} MiB of accelerator memory"
