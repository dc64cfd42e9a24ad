"""Which host of a multi-model endpoint gets a request for a target model.

A host that has the model answers at once, so the order is:

    loaded      the least busy of the hosts that report the model as loaded
    on its way  the host that was last sent a request for it: one load serves all who wait
    cold        where most memory is free, so that loading evicts no model, or the least valuable

A model whose hosts are all busy while another host is idle is hot: that host is asked to load it as
well, and the request goes to a host that has it, which is faster than any load. Reports of hosts
are a moment old. A host that has evicted the model in the meantime loads it again: a late report
costs a cold start, never a request.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.routing.copies import CopyState, ModelsObserved

#: s. A host that was sent a request for a model and has not reported it as loaded within this time
#: could not load it, or was replaced in the meantime.
_ON_ITS_WAY_S = 300.0
#: A model is hot from this many requests on its least busy host, which must also be this many times
#: those on an idler host.
_HOT_OUTSTANDING = 8
_HOT_RATIO = 4
#: s before a host is asked again to load a hot model, so that it has time to.
_ASK_AGAIN_S = 30.0
#: Free memory is compared in such steps: smaller differences decide nothing, so models spread.
_ROOM_STEP_BYTES = 128 << 20
#: Names kept per host of models on their way; the oldest are dropped first.
_SENT_MAX = 4096


def choose(
    copies: Sequence[CopyState], model: str, *, now: float
) -> tuple[CopyState | None, str, CopyState | None]:
    """(copy, reason, another host that should load the model); no copy where all are full.

    Args:
        copies: hosts that may be picked; their `models` are set.
    """
    free = [state for state in copies if state.outstanding < state.outstanding_max]
    if not free:
        return None, "", None
    holders = [state for state in free if model in _seen(state).loaded]
    if holders:
        chosen = min(holders, key=_busy)
        return chosen, "model-loaded", _helper(chosen, free, model, now)
    waited = [state for state in free if _on_its_way(state, model, now)]
    if waited:
        return min(waited, key=_busy), "model-loading", None
    chosen = max(free, key=_roomy)
    sent = _seen(chosen).sent
    sent[model] = now
    if len(sent) > _SENT_MAX:
        del sent[next(iter(sent))]
    return chosen, "model-cold", None


def _seen(state: CopyState) -> ModelsObserved:
    seen = state.models
    if seen is None:
        seen = state.models = ModelsObserved()
    return seen


def _on_its_way(state: CopyState, model: str, now: float) -> bool:
    sent = _seen(state).sent.get(model)
    return sent is not None and now < sent + _ON_ITS_WAY_S


def _helper(
    chosen: CopyState, free: Sequence[CopyState], model: str, now: float
) -> CopyState | None:
    """A host that should also load a hot model; None: there is none, or it was asked already."""
    busy = chosen.outstanding + chosen.others
    if busy < _HOT_OUTSTANDING:
        return None
    idle = [
        state
        for state in free
        if model not in _seen(state).loaded
        and busy >= _HOT_RATIO * max(state.outstanding + state.others, 1)
    ]
    if not idle:
        return None
    helper = max(idle, key=_roomy)
    asked = _seen(helper).asked
    asked_at = asked.get(model)
    if asked_at is not None and now < asked_at + _ASK_AGAIN_S:
        return None
    asked[model] = now
    if len(asked) > _SENT_MAX:
        del asked[next(iter(asked))]
    return helper


def _busy(state: CopyState) -> tuple[int, int, int]:
    return state.outstanding + state.others, state.picked, state.copy


def _roomy(state: CopyState) -> tuple[int, int, int, int, int]:
    """Sort key, larger is better: free memory in steps, few models, few requests, long unused."""
    seen = _seen(state)
    return (
        seen.free_bytes // _ROOM_STEP_BYTES,
        -len(seen.loaded) - len(seen.sent),
        -state.outstanding - state.others,
        -state.picked,
        -state.copy,
    )
