"""Which operation a method and path name, in the protocols whose operations have URIs of their own.

A template such as `/endpoints/{EndpointName}/invocations` is matched segment by segment on the path
as it came, so that an encoded slash stays inside its label; `{name+}` takes any number of segments.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from penstock.wire.aws.http import percent_decoded

if TYPE_CHECKING:  # signatures and frames must not wait for botocore to be imported
    from botocore.model import ServiceModel

_MODELS_MAX = 64


class Route(NamedTuple):
    """One operation's method and URI."""

    operation: str
    method: str
    segments: tuple[str, ...]  #: literal text, `{label}` or `{label+}`
    constants: tuple[tuple[str, str], ...]  #: what the query must hold

    def labels(
        self, method: str, segments: list[str], query: dict[str, list[str]]
    ) -> dict[str, str] | None:
        """The encoded label values if the request is this route's, else None."""
        if method != self.method or any(
            value not in query.get(name, ()) for name, value in self.constants
        ):
            return None
        spare = len(segments) - len(self.segments)
        labels: dict[str, str] = {}
        at = 0
        for wanted in self.segments:
            taken = 1
            if wanted.endswith("+}"):
                taken += spare
                spare = 0
            found = "/".join(segments[at : at + taken])
            at += taken
            if wanted.startswith("{"):
                if taken < 1 or not found:
                    return None
                labels[wanted.strip("{+}")] = found
            elif found != wanted:
                return None
        return labels if spare == 0 else None


def match(
    model: ServiceModel, method: str, path: str, query: dict[str, list[str]]
) -> tuple[str, dict[str, str]] | None:
    """The operation's name and its decoded labels, or None.

    Raises:
        AwsError: SerializationException, for a label that isn't UTF-8.
    """
    segments = path.split("/")
    for route in _routes(model):
        labels = route.labels(method, segments, query)
        if labels is not None:
            return route.operation, {
                name: percent_decoded(text, plus_is_space=False) for name, text in labels.items()
            }
    return None


def parse_query(query: str) -> dict[str, list[str]]:
    """The parameters of a query string in their order; a plus is a space.

    Raises:
        AwsError: SerializationException, for what isn't UTF-8.
    """
    parsed: dict[str, list[str]] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        key = percent_decoded(name, plus_is_space=True)
        parsed.setdefault(key, []).append(percent_decoded(value, plus_is_space=True))
    return parsed


@functools.lru_cache(maxsize=_MODELS_MAX)
def _routes(model: ServiceModel) -> list[Route]:
    """All routes, those that say most first."""
    routes = []
    for name, described in model._service_description["operations"].items():
        path, _, query = described["http"]["requestUri"].partition("?")
        constants = tuple(
            (key, value) for key, values in parse_query(query).items() for value in values
        )
        route = Route(name, described["http"]["method"], tuple(path.split("/")), constants)
        routes.append(route)

    def vagueness(route: Route) -> tuple[bool, int, int]:
        labels = [segment for segment in route.segments if segment.startswith("{")]
        greedy = any(label.endswith("+}") for label in labels)
        return greedy, len(labels), -len(route.constants)

    return sorted(routes, key=vagueness)
