"""What a container image stands for.

An image that the operator maps to a command runs that command. One that this machine's container
engine has is run; `artifacts/pull_image.py` may bring one before. The name of every other one is a
hint: the table follows AWS's own images as far as Penstock serves their content, and where it knows
none, the artifact's layout says what it is.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.machine.containers import AUTO
from penstock.core.machine.images import may_pull, registry_of, whole_id
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.container.engine import Image, decide, find_image, why_not_run
from penstock.runtimes.container.settings import ContainerSettings

_LOCAL: Final = "local://"  #: what follows names a runtime of Penstock

#: (word in the image's URI, hint), first match wins: longer words precede those they contain.
_TABLE: tuple[tuple[str, str], ...] = (
    ("djl-inference", "generation"),
    ("lmi", "generation"),
    ("tgi", "generation"),
    ("vllm", "generation"),
    ("sglang", "generation"),
    ("sagemaker-tritonserver", "triton"),
    ("huggingface-pytorch-inference", "python"),
    ("pytorch-inference", "python"),
    ("xgboost", "python"),
    ("scikit-learn", "python"),
)

#: (word, SageMaker's toolkit in such an image), first match wins.
_TOOLKITS: tuple[tuple[str, str], ...] = (
    ("huggingface-pytorch-inference", "huggingface"),
    ("pytorch-inference", "pytorch"),
    ("xgboost", "xgboost"),
    ("scikit-learn", "sklearn"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHint:
    """What an image says about its artifact."""

    #: "" (no hint) | local | triton | python | process | container | generation | unknown
    kind: str
    runtime: str = ""  #: kind `local`: the runtime that must be used
    command: tuple[str, ...] = ()  #: kind `process`: argv
    #: kind `python`: whose default functions stand in for those that the code does not define
    toolkit: str = ""
    image: Image | None = None  #: kind `container`: what is run

    @property
    def brings_server(self) -> bool:
        """Whether it serves whatever the artifact holds, which may be nothing."""
        return self.kind in ("process", "container")


def local_names() -> tuple[str, ...]:
    """Names allowed after local://. "triton" is a layout whose configuration names a runtime."""
    return (*registry.names(), "triton")


def image_hint(image: str, image_commands: Mapping[str, tuple[str, ...]]) -> ImageHint:
    """Looks an image up. The operator's mapping comes first, as the most explicit statement.

    A pattern with `*`, `?` or `[` must match the whole URI; any other must be part of it.
    Raises `CallerError` (`runtime-unknown`) for a `local://` name that does not exist.
    """
    if not image:
        return ImageHint(kind="")
    for pattern, command in image_commands.items():
        if _matches(pattern, image):
            return ImageHint(kind="process", command=tuple(command))
    if image.startswith(_LOCAL):
        return _local(image)
    for word, kind in _TABLE:
        if _has_word(image.lower(), word):
            return ImageHint(kind=kind, toolkit=_toolkit(image.lower()) if kind == "python" else "")
    return ImageHint(kind="unknown")


def image_here(
    image: str,
    image_commands: Mapping[str, tuple[str, ...]],
    containers: ContainerSettings,
    *,
    image_id: str = "",
) -> ImageHint:
    """As `image_hint`, on a machine whose container engine may have the image. Blocks.

    `image_id`: of the image that is meant, whatever has its name now. Raises CallerError
    (`image-changed`) where it is not here, and (`image-platform`) where this machine can't run it;
    NotNowError (`engine-silent`).
    """
    hint = image_hint(image, image_commands)
    if not image or hint.kind == "process" or image.startswith(_LOCAL):
        return hint
    found = find_image(containers, image_id or image)
    if found is None and image_id:
        raise _changed(image, image_id, find_image(containers, image))
    if found is None:
        return hint
    if why := why_not_run(found):
        raise CallerError(
            "image-platform",
            f"the image {image!r} can't be run here: {why}",
            hint="Build it for this machine (`podman build --platform`), or name one that is.",
        )
    return ImageHint(kind="container", image=found)


def _changed(image: str, image_id: str, other: Image | None) -> CallerError:
    now = f"its name stands for {whole_id(other.id)} now" if other else "no image has its name"
    return CallerError(
        "image-changed",
        f"the image {image!r} was {whole_id(image_id)} when the endpoint began to serve it, and"
        f" this machine's container engine has that no more: {now}",
        hint="Bring that image back, or update the endpoint: an update takes the image of now.",
    )


def is_aws_image(image: str) -> bool:
    """Whether it lies in a registry of an AWS account: a name that works there is no mistake."""
    registry_host = image.partition("/")[0].lower()
    return ".dkr.ecr" in registry_host and ".amazonaws.com" in registry_host


def _toolkit(image: str) -> str:
    return next((toolkit for word, toolkit in _TOOLKITS if _has_word(image, word)), "")


def _has_word(text: str, word: str) -> bool:
    """Whether `word` stands alone, so that "lmi" is not found in "filmindex"; a version may follow
    ("lmi11.0")."""
    at = text.find(word)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(word) : at + len(word) + 1]
        if not _is_letter(before) and not before.isdecimal() and not _is_letter(after):
            return True
        at = text.find(word, at + 1)
    return False


def _is_letter(character: str) -> bool:
    return "a" <= character <= "z"


def not_mapped(image: str, cause: str) -> CallerError:
    """The error for an image without a meaning here, whose artifact does not say what it is."""
    return CallerError(
        "image-not-mapped",
        f"the image {image!r} is not known here, and {cause}",
        hint="Map it to a command that answers /ping and /invocations in "
        f"the configuration (control.image_commands: {{{image!r} = ['my-server', '--port', "
        "'{port}']}), or leave Image out and give an artifact with a model.yaml.",
    )


#: Reason of `may_pull` -> what to do, in the error for an image that is not here.
_WHY_NOT_PULLED: Final = {
    "nothing-allowed": " Nothing is pulled unless the operator allows it (containers.pull,"
    " containers.registries).",
    "no-registry": " It is not pulled: its name begins with no registry, as docker.io/library/NAME"
    " does.",
    "not-listed": " Nothing is pulled from {}: neither containers.registries nor containers.pull"
    " names it.",
    "not-allowed": " It is not pulled: no pattern in containers.pull or containers.registries"
    " allows it.",
}


def with_engine(error: CallerError, image: str, containers: ContainerSettings) -> CallerError:
    """The error for an image that is not here, with what is known of the engine that would run it;
    unchanged where no engine is installed."""
    engine = decide(containers)
    if (engine.reason == "none-installed" and containers.engine == AUTO) or not engine.words:
        return error
    why_not = _WHY_NOT_PULLED.get(may_pull(image, containers.pull).reason, "")
    pulling = why_not.format(registry_of(image))
    ways = (
        f"Or bring it to this machine: what `{engine.engine} images` lists here is run.{pulling}"
        if engine.engine
        else f"The image itself can't be run; {engine.words}."
    )
    return CallerError(error.code, error.message, hint=f"{error.hint} {ways}")


def no_language_model(image: str) -> CallerError:
    """The error for the images of text-generation servers with an artifact of another kind."""
    return CallerError(
        "artifact-no-language-model",
        f"the image {image!r} is a text-generation server, and the artifact is no language model",
        hint="Give a Hugging Face directory (config.json of a ...ForCausalLM architecture, "
        "*.safetensors, tokenizer.json), or what `penstock compile` made of one. Models are not "
        "fetched by their names from a hub.",
    )


def _local(image: str) -> ImageHint:
    name = image[len(_LOCAL) :].strip("/")
    if name not in local_names():
        raise CallerError(
            "runtime-unknown",
            f"the image {image!r} names no runtime of Penstock",
            hint=f"Use local:// with one of: {', '.join(local_names())}.",
        )
    return ImageHint(kind="triton") if name == "triton" else ImageHint(kind="local", runtime=name)


def _matches(pattern: str, image: str) -> bool:
    if any(char in pattern for char in "*?["):
        return fnmatch.fnmatchcase(image, pattern)
    return bool(pattern) and pattern in image
