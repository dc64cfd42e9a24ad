"""Paths, methods and endpoints that are not there: the plain form of an error, with a hint."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.api.admin.app import AdminServices
from penstock.api.app import build_app
from penstock.api.aws import AwsFrontDoor
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import SystemClock
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.control.store.target_model_record import TargetModelRecord
from penstock.control.target_models import TargetModels
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.pages import MetricPages
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.store import MetricStore


def asked(state_dir: Path, method: str, target: str) -> tuple[int, dict[str, Any], str]:
    """Status, body and the header Allow, from a control plane that has no endpoints."""
    status, body, allowed = told(state_dir, method, target)
    return status, json.loads(body), allowed


def told(
    state_dir: Path, method: str, target: str, *headers: tuple[bytes, bytes]
) -> tuple[int, bytes, str]:
    """The same, with the body's bytes."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"here"), *headers],
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async def unknown(_request_id: str) -> None:
        return None

    async def ask() -> None:
        database = StoreThread(lambda: Store(state_dir))
        await database.open()
        plane: Any = SimpleNamespace(database=database, activities=lambda _name: ())
        record = TargetModelRecord(database, SystemClock())
        target_models = TargetModels(plane, lambda *_: (), ArtifactSettings(), record)
        app = build_app(
            AwsFrontDoor((), region_default="us-east-1"),
            AdminServices(plane, target_models, unknown, dict, plane, plane, plane),
            MetricPages(PrometheusPage(MetricRegistry(), MetricStore()), "gateway"),
        )
        try:
            await app(scope, receive, send)
        finally:
            await database.close()

    asyncio.run(ask())
    allowed = dict(sent[0]["headers"]).get(b"allow", b"").decode()
    return sent[0]["status"], sent[1]["body"], allowed


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("PUT", "/", 405, "method-not-allowed"),
        ("POST", "/admin/copies", 405, "method-not-allowed"),
        ("GET", "/admin/requests/nobody", 404, "request-unknown"),
        ("GET", "/admin/endpoints/nobody/logs", 404, "not-found"),
        ("GET", "/admin/endpoints/nobody/activities", 404, "not-found"),
        ("GET", "/admin/endpoints/nobody/logs?lines=all", 400, "lines-invalid"),
        ("GET", f"/admin/endpoints/nobody/logs?lines={'1' * 5000}", 400, "lines-invalid"),
        ("GET", "/admin/endpoints/nobody/logs?lines=%C2%B2", 400, "lines-invalid"),
    ],
)
def test_what_is_not_there_has_a_code(
    tmp_path: Path, method: str, path: str, status: int, code: str
) -> None:
    answered, body, _ = asked(tmp_path / "state", method, path)
    assert (answered, body["code"]) == (status, code)
    assert set(body) == {"code", "message", "hint"}


def test_a_wrong_method_names_the_right_ones(tmp_path: Path) -> None:
    _, body, allowed = asked(tmp_path / "state", "POST", "/admin/copies")
    assert "GET" in allowed
    assert body["hint"] == f"Served there: {allowed}."


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/"), ("PUT", "/bucket/key"), ("PUT", "/"), ("POST", "/b")],
)
def test_who_takes_it_for_an_object_store_is_told_what_to_set(
    tmp_path: Path, method: str, target: str
) -> None:
    """Clients of S3 come here where AWS_ENDPOINT_URL is set alone, and take a text for a fault."""
    scope = b"AWS4-HMAC-SHA256 Credential=mine/20260302/us-east-1/s3/aws4_request, SignedHeaders=h"
    status, body, _ = told(tmp_path / "state", method, target, (b"authorization", scope))
    assert status == 400
    error = ElementTree.fromstring(body)
    assert error.findtext("Code") == "InvalidRequest"
    assert "AWS_ENDPOINT_URL_S3" in str(error.findtext("Message"))
