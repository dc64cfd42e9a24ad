"""The commands of hints: they name this interpreter and where this Penstock came from."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.servers import ROOT

from penstock import distribution


def test_a_checkout_is_installed_as_it_is() -> None:
    words = shlex.split(distribution.install_command("tune"))
    assert words == [sys.executable, "-m", "pip", "install", "-e", f"{ROOT}[tune]"]


@pytest.mark.integration
def test_the_command_works_as_it_is_printed() -> None:
    """pip resolves it to this very project. Nothing is installed."""
    command = distribution.install_command("tune")
    ran = subprocess.run(
        [*shlex.split(command), "--dry-run", "--no-deps", "--no-build-isolation"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert f"Would install {distribution.NAME}" in ran.stdout


def test_what_an_index_had_is_installed_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "__file__", "/usr/lib/python3/site-packages/penstock/d.py")
    monkeypatch.setattr(distribution, "_origin", str)
    assert shlex.split(distribution.install_command("ray", "otel"))[-1] == (
        "penstock-inference[ray,otel]"
    )


def test_what_came_from_elsewhere_is_installed_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "__file__", "/usr/lib/python3/site-packages/penstock/d.py")
    monkeypatch.setattr(distribution, "_origin", lambda: "git+https://host.example/p@abc")
    assert shlex.split(distribution.install_command("ray"))[-1] == (
        "penstock-inference[ray] @ git+https://host.example/p@abc"
    )


@pytest.mark.parametrize(
    ("extra", "gpu", "own_index", "cpu_wheels"),
    [
        ("torch", False, False, True),
        ("compile", False, False, True),
        ("torch", True, False, False),
        ("torch", False, True, False),
        ("ray", False, False, False),
    ],
)
def test_torch_is_the_cpu_build_where_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, extra: str, gpu: bool, own_index: bool, cpu_wheels: bool
) -> None:
    monkeypatch.setattr(distribution, "has_gpu", lambda: gpu)
    monkeypatch.setattr(distribution, "own_index", lambda environ: own_index)
    monkeypatch.setattr(distribution.platform, "system", lambda: "Linux")
    monkeypatch.setattr(distribution.platform, "machine", lambda: "x86_64")
    words = shlex.split(distribution.install_command(extra))
    assert ("--extra-index-url" in words) == cpu_wheels


def test_an_environment_without_pip_is_filled_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution.importlib.util, "find_spec", lambda name: None)
    words = shlex.split(distribution.install_command("tune"))
    assert words[:5] == ["uv", "pip", "install", "--python", sys.executable]


def test_an_index_of_the_operators_is_seen_in_files_and_variables(tmp_path: Path) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nindex-url = https://index.example/simple\n")
    assert distribution.own_index({"PIP_CONFIG_FILE": str(settings)})
    assert distribution.own_index({"PIP_INDEX_URL": "https://index.example/simple"})
