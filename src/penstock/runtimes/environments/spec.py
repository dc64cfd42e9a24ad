"""All that decides what is in an environment, and the key under which it is kept."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.runtimes.environments import interpreters
from penstock.runtimes.environments.interpreters import Interpreter
from penstock.runtimes.environments.requirements import RequirementSet, name_of

#: Raised when environments of before must not be used any more.
_FORM: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """An environment that a model needs, or the compile of one."""

    python: Interpreter
    requirements: RequirementSet = field(default_factory=RequirementSet)
    #: Requirements of the libraries that an image or a model file names, without those that
    #: `requirements` names itself
    framework: tuple[str, ...] = ()
    accelerated: bool = False  #: there is a GPU for it
    network: bool = True  #: False: all packages come from the artifact
    packed: Path | None = None  #: an archive with the whole environment
    packed_digest: str = ""
    #: `NAME==VERSION` of packages that are copied from the server's own environment
    copied: tuple[str, ...] = ()
    #: Statements that are run once when it is built: only what they import gets bytecode then
    imports: tuple[str, ...] = ()
    what: str = "the model's environment"  #: for errors

    @property
    def is_empty(self) -> bool:
        return self.requirements.is_empty and not self.framework and self.packed is None

    @property
    def may_be_own(self) -> bool:
        """Whether the server's own environment may stand for it: the model itself asks for nothing,
        and for no other Python."""
        return (
            self.requirements.is_empty and self.packed is None and self.python == interpreters.own()
        )

    @property
    def key(self) -> str:
        wanted = self.requirements
        facts = (
            _FORM,
            [self.python.path, self.python.version, self.python.suffix],
            [platform.system(), platform.machine(), *platform.libc_ver()],
            wanted.lines,
            wanted.constraints,
            wanted.options,
            sorted(wanted.digests.items()),
            [each.name for each in wanted.files],
            wanted.no_index or not self.network,
            sorted(self.framework),
            self.accelerated,
            self.packed_digest,
            *([self.copied, self.imports] if self.copied or self.imports else []),
        )
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]

    def shown(self) -> str:
        """What is installed, in a few words."""
        if self.packed is not None:
            return self.packed.name
        named = [*self.framework, *self.requirements.lines]
        named += [each.name for each in self.requirements.files]
        short = [each.partition(" --hash")[0] for each in named[:4]]
        more = len(named) - len(short)
        return ", ".join(short) + (f" and {more} more" if more else "")


def without_named(framework: tuple[str, ...], requirements: RequirementSet) -> tuple[str, ...]:
    """The lines of a framework whose packages the model's own requirements do not name: those go
    before, as an installation into the image would."""
    return tuple(line for line in framework if name_of(line) not in requirements.names)
