"""`penstock tune`: where the model comes from, and what a wrong command line is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kit.model_files import affine

from penstock.artifacts.description import model_yaml
from penstock.cli import options as shared
from penstock.cli.artifacts import tune as command
from penstock.errors import CallerError


class TunedServer:
    """A control plane with one endpoint."""

    def __init__(self, uri: str) -> None:
        self._answers: dict[str, dict[str, Any]] = {
            "DescribeEndpoint": {"EndpointConfigName": "config"},
            "DescribeEndpointConfig": {
                "ProductionVariants": [{"ModelName": "model", "InstanceType": "ml.local.medium"}]
            },
            "DescribeModel": {"PrimaryContainer": {"ModelDataUrl": uri}},
        }

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
        return self._answers[operation]


def tune(target: str, **options: Any) -> None:
    values = {"p99_ms": 50.0, "rows_max": 2, "budget_s": 1.0, "live": False} | options
    command.tune(target, **values)


def test_the_settings_for_a_folder_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = affine(tmp_path)
    before = (folder / "model.yaml").read_text()
    tune(str(folder), write=False)
    printed = capsys.readouterr().out
    assert "in model.yaml:" in printed
    assert "threads_per_lane: 1\n" in printed
    assert (folder / "model.yaml").read_text() == before


def test_they_are_written_where_the_folder_is_here(tmp_path: Path) -> None:
    folder = affine(tmp_path)
    tune(str(folder))
    assert model_yaml.load(folder).threads_per_lane == 1


def test_an_endpoint_names_its_artifact_and_instance_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = TunedServer(affine(tmp_path).as_uri())
    monkeypatch.setattr(shared, "Client", lambda url, **_: server)
    tune("intent", server=shared.ReportOptions(json_=True))
    assert '"live": []' in capsys.readouterr().out
    with command._found("intent", shared.SERVER) as (detected, instance_type):
        assert detected.root == tmp_path
        assert instance_type == "ml.local.medium"


@pytest.mark.parametrize(
    ("target", "options", "code"),
    [
        ("./nowhere", {}, "artifact-not-found"),
        ("intent", {"p99_ms": 0.0}, "p99-invalid"),
        ("intent", {"tokens": [0]}, "tokens-invalid"),
    ],
)
def test_a_mistake_is_named(target: str, options: dict[str, Any], code: str) -> None:
    with pytest.raises(CallerError) as caught:
        tune(target, **options)
    assert caught.value.code == code


def test_what_is_out_of_reach_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CallerError) as caught:
        tune(str(affine(tmp_path)), p99_ms=1e-4)
    assert caught.value.code == "p99-out-of-reach"
    assert "the closest is" in caught.value.message


def test_without_matplotlib_a_picture_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CallerError) as caught:
        tune("./nowhere", png=tmp_path / "pareto.png")
    assert caught.value.code == "matplotlib-missing"
    assert "[tune]" in caught.value.hint


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `tune`")
    picture = tmp_path / "pareto.png"
    tune(str(affine(tmp_path / "model")), png=picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
