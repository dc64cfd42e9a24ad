"""A driver without a will of its own: it does what it is told, and keeps the memory that an
operating system would show. Bytes are counted in tens: a budget of 100 holds ten small models."""

from __future__ import annotations

from typing import Any

from penstock.core.residency import (
    Action,
    Admit,
    Footprint,
    Load,
    Prepare,
    Residency,
    ResidencySpec,
    Unload,
)


def bytes_(host: int, accelerator: int = 0) -> Footprint:
    return Footprint(host_bytes=host, accelerator_bytes=accelerator)


class Host:
    """One machine with its books; every input checks that it does not contradict itself."""

    def __init__(
        self, host: int = 100, accelerator: int = 0, *, used: int = 0, **spec: Any
    ) -> None:
        spec.setdefault("residency_s_min", 0.0)
        if (running := spec.pop("running", None)) is not None:
            spec["budget_running"] = bytes_(running, accelerator)
        self.used = bytes_(used)
        self.sizes: dict[str, Footprint] = {}
        self.machine = Residency(
            ResidencySpec(budget=bytes_(host, accelerator), **spec), used=self.used
        )

    def request(self, model: str, now: float, deadline: float | None = None) -> list[Action]:
        return self._checked(self.machine.request(model, now=now, deadline=deadline))

    def call(
        self, model: str, need: int, now: float, *callers: str, deadline: float | None = None
    ) -> list[Action]:
        """A call by other models, which wait for it; the artifact is here at once."""
        actions = self._checked(
            self.machine.request(model, now=now, deadline=deadline, callers=callers)
        )
        if any(isinstance(each, Prepare) for each in actions):
            return self.prepared(model, need, now)
        return actions

    def quarantined(self, model: str, seconds: float, message: str, now: float) -> list[Action]:
        return self._checked(
            self.machine.quarantined(model, seconds=seconds, message=message, now=now)
        )

    def abandoned(self, model: str, now: float, deadline: float | None = None) -> list[Action]:
        return self._checked(self.machine.abandoned(model, now=now, deadline=deadline))

    def prepared(
        self, model: str, need: int | Footprint, now: float, prepare_s: float = 0.0, **known: Any
    ) -> list[Action]:
        """Of models whose sizes are known, unless it is said that they are not."""
        size = bytes_(need) if isinstance(need, int) else need
        known.setdefault("sized", True)
        return self._checked(
            self.machine.prepared(model, size, now=now, prepare_s=prepare_s, **known)
        )

    def loaded(
        self, model: str, taken: int | Footprint, now: float, load_s: float = 1.0
    ) -> list[Action]:
        size = bytes_(taken) if isinstance(taken, int) else taken
        self.sizes[model] = size
        self.used += size
        return self._checked(
            self.machine.loaded(model, size, now=now, load_s=load_s, used=self.used)
        )

    def failed(
        self, model: str, now: float, message: str = "no weights", permanent: bool = False
    ) -> list[Action]:
        return self._checked(
            self.machine.load_failed(
                model, now=now, message=message, permanent=permanent, used=self.used
            )
        )

    def began(self, model: str, now: float) -> None:
        self.machine.began(model, now=now)

    def idle(self, model: str, now: float) -> list[Action]:
        return self._checked(self.machine.idle(model, now=now))

    def called(self, model: str, now: float) -> list[Action]:
        """One request to a loaded model, answered at once."""
        assert self.machine.is_loaded(model)
        self.began(model, now)
        return self.idle(model, now)

    def unloaded(self, model: str, now: float) -> list[Action]:
        self.used -= self.sizes.pop(model)
        return self._checked(self.machine.unloaded(model, now=now, used=self.used))

    def crashed(self, model: str, now: float, message: str = "") -> list[Action]:
        self.used -= self.sizes.pop(model, bytes_(0))
        return self._checked(self.machine.crashed(model, now=now, used=self.used, message=message))

    def measured(self, now: float, grown: int = 0, **by_model: int) -> list[Action]:
        """`grown`: by what no model is known to have taken; `by_model`: what models take now."""
        for model, taken in by_model.items():
            self.used += bytes_(taken) - self.sizes[model]
            self.sizes[model] = bytes_(taken)
        self.used += bytes_(grown)
        known = {model: self.sizes[model] for model in by_model}
        return self._checked(self.machine.measured(self.used, now=now, by_model=known))

    def wish(self, model: str, now: float, pardon: bool = True) -> list[Action]:
        return self._checked(self.machine.wish(model, now=now, pardon=pardon))

    def dismiss(self, model: str, now: float) -> list[Action]:
        return self._checked(self.machine.dismiss(model, now=now))

    def replaced(self, model: str, now: float) -> list[Action]:
        return self._checked(self.machine.replaced(model, now=now))

    def pin(self, model: str, now: float, pinned: bool = True) -> list[Action]:
        return self._checked(self.machine.pin(model, pinned, now=now))

    def timer(self, now: float) -> list[Action]:
        return self._checked(self.machine.on_timer(now=now))

    @property
    def deadline(self) -> float | None:
        return self.machine.next_deadline()

    @property
    def loaded_models(self) -> list[str]:
        return list(self.machine.snapshot()["loaded"])

    def explain(self, model: str, now: float | None = None) -> dict[str, Any]:
        return self.machine.explain(model, now=now)

    # whole ways

    def bring(self, model: str, size: int | Footprint, now: float, load_s: float = 1.0) -> None:
        """Called, loaded into free room, answered: all at one moment."""
        again = "called-again" if self.explain(model).get("loads") else "first-call"
        assert self.request(model, now) == [Prepare(model, again)]
        assert self.prepared(model, size, now) == [Load(model, again)]
        assert self.loaded(model, size, now, load_s) == [Admit(model, "loaded")]
        self.began(model, now)
        assert self.idle(model, now) == []

    def ask(self, model: str, size: int | Footprint, now: float, **known: Any) -> list[Action]:
        """Called and prepared: what is done to make room for it."""
        assert [type(action) for action in self.request(model, now)] == [Prepare]
        return self.prepared(model, size, now, **known)

    def swap(self, model: str, size: int, now: float, load_s: float = 1.0) -> list[str]:
        """Called, loaded, answered, whoever must go; returns those who went."""
        actions = self.ask(model, size, now)
        gone = [action.model for action in actions if isinstance(action, Unload)]
        for victim in gone:
            actions = self.unloaded(victim, now)
        assert [type(action) for action in actions] == [Load]
        assert self.loaded(model, size, now, load_s) == [Admit(model, "loaded")]
        self.began(model, now)
        self.idle(model, now)
        return gone

    def _checked(self, actions: list[Action]) -> list[Action]:
        self.machine.check_invariants()
        return actions
