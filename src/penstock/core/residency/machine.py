"""Which target models of a multi-model host are loaded, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.residency import actions as why
from penstock.core.residency.actions import Action, Admit, Load, Prepare, Refuse, Unload
from penstock.core.residency.spec import NOTHING, Footprint, ResidencySpec


class Residency:
    """Decides for one host of target models. Every input returns what is to be done now."""

    def __init__(self, spec: ResidencySpec, *, used: Footprint = NOTHING) -> None:
        """`used`: what the process tree takes without any model, as measured."""
        self._spec = spec
        self._used = used
        self._ready: set[str] = set()
        self._busy: set[str] = set()
        self._waiting: dict[str, int] = {}
        self._needs: dict[str, Footprint] = {}
        self._moving: set[str] = set()

    # requests

    def is_loaded(self, model: str) -> bool:
        """Whether a request may go to it at once (then call `began`)."""
        return model in self._ready

    def began(self, model: str, *, now: float) -> None:
        """A request goes to a loaded model, which is busy from here until `idle`."""
        self._busy.add(model)

    def idle(self, model: str, *, now: float) -> list[Action]:
        """The last request in flight on the model was answered, or gone before it began."""
        self._busy.discard(model)
        return []

    def request(self, model: str, *, now: float, deadline: float | None = None) -> list[Action]:
        """A request for a model that is not loaded; the driver has parked it.

        It stays parked until `Admit` or `Refuse` of its model, or until the driver says
        `abandoned`. Parked requests need no timers of their own: at their deadline they are refused.
        """
        self._waiting[model] = self._waiting.get(model, 0) + 1
        if model in self._moving:
            return []
        self._moving.add(model)
        return [Prepare(model, why.FIRST_CALL)]

    def abandoned(self, model: str, *, now: float, deadline: float | None = None) -> list[Action]:
        """One parked request, the one with this deadline, was cancelled by its caller."""
        self._waiting[model] -= 1
        return []

    def wish(self, model: str, *, now: float) -> list[Action]:
        """An explicit load: as a request without a caller. Forgets that it failed before.

        `Refuse` says that it can't be; that it is loaded is said by nothing but `loaded` itself.
        """
        if model in self._moving or model in self._ready:
            return []
        self._moving.add(model)
        return [Prepare(model, why.WISHED)]

    def dismiss(self, model: str, *, now: float) -> list[Action]:
        """An explicit unload, once nothing is in flight; the next request loads it again."""
        if model not in self._ready:
            return []
        self._ready.discard(model)
        return [Unload(model, why.DISMISSED)]

    def pin(self, model: str, pinned: bool, *, now: float) -> list[Action]:
        """A pinned model is not evicted. It is loaded by `wish` or by its first request."""
        return []

    def replaced(self, model: str, *, now: float) -> list[Action]:
        """Its artifact changed or is gone: what is loaded serves what is in flight, no more."""
        if model not in self._ready:
            return []
        self._ready.discard(model)
        return [Unload(model, why.REPLACED)]

    # what came of actions

    def prepared(
        self,
        model: str,
        need: Footprint,
        *,
        now: float,
        prepare_s: float,
        artifact: str = "",
        measured: bool = False,
    ) -> list[Action]:
        """Its artifact is here, and it will take `need`: an estimate, or what it took before.

        Args:
            model: what was to be prepared.
            need: at its highest, while it loads or runs.
            now: seconds.
            prepare_s: what fetching and unpacking took.
            artifact: names its content; another one than before forgets what was known of it.
            measured: `need` was measured on this machine.
        """
        self._needs[model] = need
        return [Load(model, why.FIRST_CALL)]

    def loaded(
        self, model: str, taken: Footprint, *, now: float, load_s: float, used: Footprint
    ) -> list[Action]:
        """It runs. `taken`: measured growth by it; `used`: the whole tree, now."""
        self._used = used
        self._moving.discard(model)
        self._ready.add(model)
        return [Admit(model, why.LOADED)] if self._waiting.pop(model, 0) else []

    def load_failed(
        self, model: str, *, now: float, message: str, permanent: bool, used: Footprint
    ) -> list[Action]:
        """Preparing or loading failed. `permanent`: until its artifact changes."""
        self._moving.discard(model)
        self._waiting.pop(model, 0)
        return [Refuse(model, why.LOAD_FAILED, message, None)]

    def unloaded(self, model: str, *, now: float, used: Footprint) -> list[Action]:
        """Its memory was given back; `used` is measured after that."""
        self._used = used
        return []

    def crashed(self, model: str, *, now: float, used: Footprint) -> list[Action]:
        """Its worker died, while it loaded or afterwards. Of a shared worker: for each model."""
        self._ready.discard(model)
        return []

    def measured(
        self, used: Footprint, *, now: float, by_model: Mapping[str, Footprint] | None = None
    ) -> list[Action]:
        """A look at memory: the whole tree, and of some loaded models what they take now."""
        self._used = used
        return []

    # time

    def on_timer(self, *, now: float) -> list[Action]:
        return []

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, in s; None while nothing waits. Ask again after every call."""
        return None

    # explanation

    def snapshot(self) -> dict[str, Any]:
        """The host's state, JSON-ready."""
        return {"models": sorted(self._ready)}

    def explain(self, model: str) -> dict[str, Any]:
        """What is known of one model and why it is as it is, JSON-ready."""
        return {"model": model}

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        assert self._ready.isdisjoint(self._moving), "loaded and on its way at once"
