"""The names of all endpoints in protocols, besides their SageMaker names.

`core/deployment/served_names.py` says what such a name is. They come with the routes, or with the
reports of regions. The doors resolve the names in requests with them, before anything else reads a
name.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from penstock.core.deployment.served_names import MODELS, NAME_CHARS_MAX, listed


class ServedNames:
    """Served name -> (endpoint, target model or component). Whoever keeps what follows from a name
    registers in `on_change`, and forgets it there."""

    def __init__(self, endpoints: Container[str]) -> None:
        """`endpoints`: names of the endpoints that there are at any moment."""
        self._endpoints = endpoints
        self.on_change: list[Callable[[], object]] = []
        self._found: dict[str, tuple[str, str | None]] = {}
        self._models = ""  #: the endpoint whose target models are served under their own names

    def take(self, endpoint: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """The endpoint had the names `before`, and has `now`. Called before a new endpoint is among
        the others, and after one has left."""
        if before == now and endpoint in self._endpoints:
            return
        for name in before:
            if name in self._found and self._found[name][0] == endpoint:
                del self._found[name]
        for name, target in listed(now).items():
            self._found[name] = endpoint, target or None
        if MODELS in now:
            self._models = endpoint
        elif self._models == endpoint:
            self._models = ""
        for forget in self.on_change:
            forget()

    def find(self, name: str) -> tuple[str, str | None] | None:
        """(endpoint, target) of a served name, or of `served name:target`; None for any other, such
        as an endpoint's own, unless its target models are served under theirs."""
        if not (self._found or self._models):
            return None
        if name in self._endpoints:
            # Such an endpoint has no model of its own, and a repository may have the model's name.
            return (name, name) if name == self._models else None
        found = self._found.get(name)
        if found is not None:
            return found
        at = name.find(":")
        longest = None
        while 0 <= at <= NAME_CHARS_MAX:  # a served name may have colons, and the longest one wins
            found = self._found.get(name[:at])
            if found is not None and found[1] is None:
                longest = found[0], name[at + 1 :]
            at = name.find(":", at + 1)
        return longest or self._target(name)

    def _target(self, name: str) -> tuple[str, str] | None:
        """The target model of that name, where an endpoint serves all of them under their own."""
        if not self._models or not name or name.partition(":")[0] in self._endpoints:
            return None
        return self._models, name
