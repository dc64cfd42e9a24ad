"""The endpoint configurations of an inference experiment, and what its members may say.

A configuration is made of the one that the endpoint had before (`base`), so what concerns neither
variants nor capture stays: isolation, metrics, routing, timeouts. Configurations and requests are
members of CreateEndpointConfig and CreateInferenceExperiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.errors import CallerError

Json = Mapping[str, Any]

DAY_S: Final = 86_400.0
#: SageMaker's: an experiment without EndTime takes a week, and none more than 30 days.
DURATION_S_DEFAULT: Final = 7 * DAY_S
DURATION_S_MAX: Final = 30 * DAY_S
#: A server's clock and its tables are not trusted with more.
AHEAD_S_MAX: Final = 365 * DAY_S

RETAIN: Final = "Retain"
REMOVE: Final = "Remove"
PROMOTE: Final = "Promote"

_PERCENT_MAX: Final = 100


def window(schedule: Json, *, now: float, starts: float | None = None) -> tuple[float, float]:
    """(start, end), wall s.

    Args:
        starts: when it has started; then its StartTime can't change any more.

    Raises:
        CallerError: `experiment-invalid`.
    """
    start, end = schedule.get("StartTime"), schedule.get("EndTime")
    if starts is not None and start not in (None, starts):
        raise _invalid("Schedule: StartTime can't change once the experiment has started")
    begins = starts if starts is not None else max(now, start or now)
    if begins > now + AHEAD_S_MAX:
        raise _invalid("Schedule: StartTime is more than a year ahead")
    ends = begins + DURATION_S_DEFAULT if end is None else end
    if ends <= max(now, begins):
        raise _invalid("Schedule: EndTime must be after now, and after StartTime")
    if ends > begins + DURATION_S_MAX:
        raise _invalid("Schedule: an experiment takes at most 30 days; EndTime is later")
    return begins, ends


def names_of(request: Json) -> tuple[str, str]:
    """(production variant, shadow variant).

    Raises:
        CallerError: `experiment-invalid`: ModelVariants and ShadowModeConfig contradict each other.
    """
    mode = request["ShadowModeConfig"]
    (shadow,) = mode["ShadowModelVariants"]
    source, name = mode["SourceModelVariantName"], shadow["ShadowModelVariantName"]
    given = [one["VariantName"] for one in request["ModelVariants"]]
    if sorted(given) != sorted((source, name)) or source.lower() == name.lower():
        raise _invalid(
            f"ModelVariants must be the source variant {source!r} and the shadow variant {name!r},"
            f" and are {', '.join(map(repr, given))}"
        )
    if not 0 <= shadow["SamplingPercentage"] <= _PERCENT_MAX:
        raise _invalid(f"SamplingPercentage {shadow['SamplingPercentage']} must be 0 to 100")
    _check_counts(request["ModelVariants"])
    return source, name


def experiment_config(base: Json, request: Json, name: str) -> dict[str, Any]:
    """The configuration while the experiment runs."""
    source, shadow = names_of(request)
    percent = request["ShadowModeConfig"]["ShadowModelVariants"][0]["SamplingPercentage"]
    return _config(
        _with_capture(base, request),
        name,
        _variant(base, request["ModelVariants"], source, 1.0),
        # Its weight divided by the production variant's is the share that it gets.
        _variant(base, request["ModelVariants"], shadow, percent / _PERCENT_MAX),
    )


def survivors(request: Json, actions: Mapping[str, str]) -> tuple[str, str]:
    """(production variant, shadow variant or "") after a Stop with these ModelVariantActions.

    Raises:
        CallerError: `experiment-invalid`: an unknown variant, or no or two production variants.
    """
    source, shadow = names_of(request)
    for variant in actions:
        if variant not in (source, shadow):
            raise _invalid(
                f"ModelVariantActions names {variant!r}; the variants are {source!r} and {shadow!r}"
            )
    of_shadow = actions.get(shadow, REMOVE)
    of_source = actions.get(source, REMOVE if of_shadow == PROMOTE else RETAIN)
    match of_source, of_shadow:
        case "Remove", "Promote":
            return shadow, ""
        case "Retain", "Remove":
            return source, ""
        case "Retain", "Retain":
            return source, shadow
    raise _invalid(
        f"ModelVariantActions {of_source} of {source!r} with {of_shadow} of {shadow!r}: one"
        " production variant must stay. Retain it, or Remove it and Promote the shadow variant"
    )


def final_config(
    base: Json, request: Json, kept: tuple[str, str], desired: Sequence[Json] | None, name: str
) -> dict[str, Any]:
    """The configuration after the experiment.

    Args:
        kept: as `survivors` gives them.
        desired: DesiredModelVariants; None: the variants are as they were in the experiment.

    Raises:
        CallerError: `experiment-invalid`: `desired` are others than those that are kept.
    """
    production, shadow = kept
    wanted = [one for one in kept if one]
    models = {one["VariantName"]: one["ModelName"] for one in request["ModelVariants"]}
    if desired is not None:
        given = {one["VariantName"]: one["ModelName"] for one in desired}
        if len(given) != len(desired) or given != {one: models[one] for one in wanted}:
            raise _invalid(
                f"DesiredModelVariants must be what is kept, {', '.join(map(repr, wanted))}, with"
                " the same ModelName"
            )
        _check_counts(desired)
    variants = request["ModelVariants"] if desired is None else desired
    if shadow:
        return experiment_config(base, dict(request) | {"ModelVariants": variants}, name)
    return _config(base, name, _variant(base, variants, production, 1.0))


def keeps_model(base: Json, request: Json) -> bool:
    """Whether the production variant of the experiment has the model that the endpoint had
    before."""
    source, _ = names_of(request)
    (before,) = base["ProductionVariants"]
    return bool(before["ModelName"].lower() == dict(_models(request))[source].lower())


def changed(request: Json, update: Json) -> dict[str, Any]:
    """The request with the members of an UpdateInferenceExperiment.

    Raises:
        CallerError: `experiment-invalid`: it names other variants or models.
    """
    members = ("Schedule", "Description", "ModelVariants", "DataStorageConfig", "ShadowModeConfig")
    after = dict(request) | {one: update[one] for one in members if update.get(one) is not None}
    if update.get("Schedule"):
        after["Schedule"] = (request.get("Schedule") or {}) | update["Schedule"]
    for what, named in (("variants", names_of), ("models", _models)):
        if named(after) != named(request):
            raise _invalid(
                f"an experiment keeps its {what}. Stop it, and create another with new ones"
            )
    return after


def _models(request: Json) -> list[tuple[str, str]]:
    return sorted((one["VariantName"], one["ModelName"]) for one in request["ModelVariants"])


def _check_counts(variants: Sequence[Json]) -> None:
    for one in variants:
        count = one["InfrastructureConfig"]["RealTimeInferenceConfig"]["InstanceCount"]
        if count < 1:
            raise _invalid(
                f"variant {one['VariantName']!r}: InstanceCount is {count}; it needs one instance"
            )


def _config(base: Json, name: str, production: Json, *shadows: Json) -> dict[str, Any]:
    made = dict(base) | {"EndpointConfigName": name, "ProductionVariants": [dict(production)]}
    if shadows:
        made["ShadowProductionVariants"] = [dict(one) for one in shadows]
    return made


def _variant(base: Json, variants: Sequence[Json], name: str, weight: float) -> dict[str, Any]:
    (given,) = (one for one in variants if one["VariantName"] == name)
    real_time = given["InfrastructureConfig"]["RealTimeInferenceConfig"]
    kept = dict(base["ProductionVariants"][0])
    kept.pop("InstancePools", None)  # instead of which there is one type
    return kept | {
        "VariantName": name,
        "ModelName": given["ModelName"],
        "InstanceType": real_time["InstanceType"],
        "InitialInstanceCount": real_time["InstanceCount"],
        "InitialVariantWeight": weight,
    }


def _with_capture(base: Json, request: Json) -> dict[str, Any]:
    storage = request.get("DataStorageConfig")
    if not storage:
        return dict(base)
    capture: dict[str, Any] = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": storage["Destination"],
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    }
    if storage.get("ContentType"):
        capture["CaptureContentTypeHeader"] = storage["ContentType"]
    return dict(base) | {"DataCaptureConfig": capture}


def _invalid(cause: str) -> CallerError:
    return CallerError("experiment-invalid", cause)
