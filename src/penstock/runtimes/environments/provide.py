"""From a model that is to be loaded to the Python that its processes run. Blocks."""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.clock import Clock, SystemClock
from penstock.errors import ModelError
from penstock.runtimes import registry
from penstock.runtimes.base import INSTALLING, LoadContext
from penstock.runtimes.environments import interpreters
from penstock.runtimes.environments.build import EnvironmentBuilder
from penstock.runtimes.environments.installer import Installer, size_of
from penstock.runtimes.environments.packed import digest_of
from penstock.runtimes.environments.requirements import name_of, read_requirements
from penstock.runtimes.environments.settings import EnvironmentSettings
from penstock.runtimes.environments.spec import EnvironmentSpec, without_named
from penstock.runtimes.environments.store import (
    EnvironmentLease,
    EnvironmentMade,
    EnvironmentStore,
)
from penstock.runtimes.record import Interface

#: The key of model.yaml that says which runtimes an environment is made for.
KEY = "requirements"


def spec_of(context: LoadContext, settings: EnvironmentSettings) -> EnvironmentSpec | None:
    """What the model's processes need; None: they run in the server's own environment.

    Raises CallerError for requirements that are refused, or a Python that is not there.
    """
    description = context.description
    record = registry.record(description.runtime)
    in_processes = record.has(Interface.PAYLOAD, Interface.PIPELINE)
    if not settings.enabled or not in_processes:
        return None
    if KEY not in record.options and not description.framework:
        return None
    if description.ensemble or description.mapped_command:
        return None
    if description.packed_environment:
        return EnvironmentSpec(
            python=interpreters.own(),
            packed=context.model_dir / description.packed_environment,
            packed_digest=digest_of(context.model_dir, description.packed_environment),
            network=not context.network_isolated,
        )
    requirements = read_requirements(
        context.model_dir,
        description.file,
        description.requirements,
        allowed=settings.indexes,
    )
    spec = EnvironmentSpec(
        python=interpreters.chosen(description.python, settings.pythons),
        requirements=requirements,
        framework=without_named(description.framework, requirements),
        accelerated=context.accelerators > 0,
        network=not context.network_isolated or requirements.is_empty,
    )
    return None if spec.is_empty and not description.python else spec


@dataclass(slots=True)
class Provider:
    """Environments for the models of one instance, below `root`."""

    root: Path
    settings: EnvironmentSettings
    clock: Clock = field(default_factory=SystemClock)
    #: what a model does without, and why; for the error if it can't be loaded so
    missing: str = ""

    def provide(
        self, context: LoadContext, cancelled: threading.Event, *, seconds: float
    ) -> EnvironmentLease | None:
        """The environment for one model, without those inside it. None: it needs none, or no index
        can be reached for what its image or its file stands for: then the server's own serves as
        if environments were off.

        Raises PenstockError; then nothing is left of what was begun.
        """
        spec = spec_of(context, self.settings)
        if spec is None:
            return None
        context.phase(INSTALLING)
        read = (str(context.model_dir),)
        try:
            return self.obtain(spec, cancelled, seconds=seconds, log=context.log, read=read)
        except ModelError as error:
            if error.code != "index-unreachable" or not spec.may_be_own:
                raise
            self.missing = f"{error.message}; {_own_instead(spec)}"
            context.log(f"environment: {self.missing}")
            return None

    def obtain(
        self,
        spec: EnvironmentSpec,
        cancelled: threading.Event,
        *,
        seconds: float,
        log: Callable[[str], None],
        read: tuple[str, ...] = (),
    ) -> EnvironmentLease:
        """The environment that `spec` describes. `read`: what its installer reads besides the
        system and Python. Raises as `provide`."""
        seconds = min(seconds, self.settings.seconds_max)
        began = self.clock.monotonic()
        store = EnvironmentStore(self.root, self.clock)
        installer = Installer(
            folder=self.root,
            scratch=self.root,
            read=(*read, spec.python.prefix),
            network=spec.network,
            deadline=began + seconds,
            seconds_max=seconds,
            bytes_max=self.settings.each_bytes_max,
            cancelled=cancelled,
            log=log,
            clock=self.clock,
        )

        def build(folder: Path, scratch: Path) -> EnvironmentMade:
            installer.folder, installer.scratch = folder, scratch
            log(f"environment: {spec.shown()}, built once for this machine")
            builder = EnvironmentBuilder(spec, self.settings, installer, store.wheels)
            built = builder.build()
            return EnvironmentMade(
                key=spec.key,
                interpreter=str(folder / "bin" / "python"),
                python=built.python.version,
                dirs=built.dirs,
                framework=built.framework,
                notes=built.notes,
                bytes=size_of(folder),
            )

        lease = store.obtain(spec.key, build, log=log, check=installer.check)
        taken = self.clock.monotonic() - began
        log(f"environment: ready, {', '.join(_said(lease.made))} ({taken:.1f} s)")
        for key in store.evict(self.settings.bytes_max):
            log(f"environment {key} removed: it was the least recently used")
        return lease


def _said(made: EnvironmentMade) -> list[str]:
    return [f"Python {made.python}", *made.framework, *made.notes]


def _own_instead(spec: EnvironmentSpec) -> str:
    """What the server's own environment has of the libraries in `spec`."""
    there, not_there = [], []
    for name in map(name_of, spec.framework):
        try:
            there.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            not_there.append(name)
    has = f"with {', '.join(there)}" if there else ""
    lacks = f"without {', '.join(not_there)}" if not_there else ""
    return f"the server's own environment is used, {' and '.join(filter(None, (has, lacks)))}"


def contexts_of(context: LoadContext) -> dict[str, LoadContext]:
    """A context for the model ("") and for each model inside it, by name."""
    found = {"": context}
    for inside in context.description.models:
        folder = (context.model_dir / inside.folder).resolve()
        found[inside.name] = replace(context, model_dir=folder, description=inside.description)
    return found
