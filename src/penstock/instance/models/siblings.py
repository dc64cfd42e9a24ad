"""The models that lie beside a target model: whom it means by a name, and whether its steps fit.

A model of a Triton repository is called by the name of its folder. In a prefix it may also be an
archive of that name. All calls block on the disk or the network.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.model_prefix import ModelPrefix
from penstock.artifacts.models.index import ARCHIVES, suffix_of
from penstock.artifacts.triton.triton_models import check_beside_others, named
from penstock.errors import CallerError


class Siblings:
    def __init__(self, prefix: ModelPrefix, cache_dir: Path) -> None:
        self._prefix = prefix
        self._cache_dir = cache_dir
        self._found: dict[tuple[str, str], str] = {}  #: (folder, name) -> target model

    def candidates(self, caller: str, name: str) -> list[str]:
        """The target models that `caller` may mean by `name`, the likeliest first."""
        if "/" in name:  # models of other folders are others' matter
            return []
        above = f"{_folder_of(caller)}/" if _folder_of(caller) else ""
        known = self._found.get((_folder_of(caller), name))
        suffixes = sorted(("", *ARCHIVES), key=lambda one: one != suffix_of(caller))
        return ([known] if known else []) + [f"{above}{name}{suffix}" for suffix in suffixes]

    def find(self, caller: str, name: str) -> str | None:
        """The target model that there is."""
        for candidate in self.candidates(caller, name):
            try:
                there = self._prefix.stamp(candidate) is not None
            except CallerError:
                there = False
            if there:
                self._found[_folder_of(caller), name] = candidate
                return candidate
        return None

    def checked(self, target: str, description: ModelDescription) -> list[str]:
        """Checks an ensemble; returns the target models of its steps. Raises CallerError
        (`triton-ensemble-invalid`) and the errors of fetching and reading them."""
        check_beside_others(description, lambda name: self._described(target, name))
        steps = dict.fromkeys(step.model for step in description.ensemble)
        return [found for step in steps if (found := self.find(target, step)) is not None]

    def _described(self, caller: str, name: str) -> ModelDescription | None:
        target = self.find(caller, name)
        if target is None:
            return None
        cache = ArtifactCache(self._cache_dir / "artifacts")
        try:
            fetched = self._prefix.fetch(target, cache)
        except CallerError as error:
            error.message = f"model {name!r}: {error.message}"
            raise
        description = fetched.detected.description
        if description.models:  # an archive with models of its own is one model to others
            description = dataclasses.replace(description, ensemble=())
        return named(description, name)


def _folder_of(target: str) -> str:
    return target.rpartition("/")[0]
