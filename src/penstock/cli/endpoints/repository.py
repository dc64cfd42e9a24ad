"""A Triton model repository as one endpoint, whose models are each served under their own names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.core.deployment.served_names import MODELS
from penstock.errors import CallerError

#: Of a model's Environment: the model of a repository that answers alone.
DEFAULT_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
#: Of a model's Environment: `all` = a multi-model endpoint loads what fits when it starts.
MODELS_AT_START = "PENSTOCK_MODELS_AT_START"


def in_repository(
    create: Callable[..., str],
    name: str,
    uri: str,
    environment: Mapping[str, str],
    *,
    served: Sequence[str] = (),
    multi_model: bool = False,
) -> tuple[str, tuple[str, ...], bool]:
    """Creates an endpoint by `create`, which takes environment, served names and `multi_model`.

    A repository with several models becomes a multi-model endpoint, unless its Environment says
    which of them answers alone. Returns what `create` does, the served names, and whether it is a
    multi-model endpoint.
    """
    models = [] if multi_model or DEFAULT_MODEL in environment else _models_below(uri)
    if len(models) < 2:
        made = create(environment=dict(environment), served=served, multi_model=multi_model)
        return made, tuple(served), multi_model
    environment = {MODELS_AT_START: "all", **environment}
    all_names = (*served, MODELS)
    try:
        made = create(environment=environment, served=all_names, multi_model=True)
    except CallerError as error:
        # Another endpoint has the names of whatever lies below its prefix: this one has a name for
        # each model that lies there now.
        if f'"{MODELS}" belongs to' not in error.message:
            raise
        all_names = (*served, *(f"{each}={each}" for each in models if each != name))
        made = create(environment=environment, served=all_names, multi_model=True)
    return made, all_names, True


def _models_below(uri: str) -> list[str]:
    from penstock.artifacts.models.index import is_model_folder  # noqa: PLC0415 - when it is used
    from penstock.artifacts.triton.triton_models import models_below  # noqa: PLC0415

    root = Path(unquote(urlsplit(uri).path))
    if not uri.startswith("file://") or not root.is_dir():
        return []
    names = {path.name for path in root.iterdir()}
    return [] if is_model_folder(names, names) else models_below(root)
