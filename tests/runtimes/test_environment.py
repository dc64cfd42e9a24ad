"""Which variables leave the server: an allow-list, and no secret among them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from penstock.runtimes import environment
from penstock.runtimes.environment import (
    for_instances,
    for_models,
    huge_pages_end_here,
    own_packages,
    with_huge_pages,
)

SECRETS = (
    "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_PROFILE",
    "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_ACCOUNT_KEY", "HTTPS_PROXY", "http_proxy",
    "PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX",
)  # fmt: skip
NOBODYS = (
    "PENSTOCK_DATABASE", "PENSTOCK_KEY", "DATABASE_URL", "PGPASSWORD", "HF_TOKEN", "VLLM_API_KEY",
    "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "KUBECONFIG", "SSH_AUTH_SOCK", "GITHUB_TOKEN",
    "A_NAME_OF_TOMORROW", "SM_SECRET", "SAGEMAKER_AUTH",
)  # fmt: skip
MODELS = (
    "PATH", "LANG", "LC_ALL", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE", "HF_HOME",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "SAGEMAKER_PROGRAM", "SM_MODEL_DIR",
    "PYTHONPATH", "LD_LIBRARY_PATH",
)  # fmt: skip


@pytest.mark.parametrize("name", NOBODYS)
def test_what_is_not_named_stays_with_the_server(name: str) -> None:
    assert for_models({name: "x"}) == {}
    assert for_instances({name: "x"}) == {}


@pytest.mark.parametrize("name", SECRETS)
def test_credentials_for_artifacts_and_packages_reach_instances_and_no_model(name: str) -> None:
    assert for_models({name: "x"}) == {}
    assert for_instances({name: "x"}) == {name: "x"}


@pytest.mark.parametrize("name", MODELS)
def test_what_libraries_need_reaches_models(name: str) -> None:
    assert for_models({name: "x"}) == {name: "x"}
    assert for_instances({name: "x"}) == {name: "x"}


def test_huge_pages_are_for_instances_and_not_for_what_they_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [(name, value)] = with_huge_pages({}).items()
    monkeypatch.setenv(name, value)
    huge_pages_end_here()
    assert name not in for_models()


def test_who_tunes_the_c_library_himself_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}
    assert with_huge_pages(owners) == owners
    monkeypatch.setenv(*next(iter(owners.items())))
    huge_pages_end_here()
    assert for_models()["GLIBC_TUNABLES"] == owners["GLIBC_TUNABLES"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a server that is installed among libraries."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(environment, "_is_among_libraries", lambda: True)
    return tmp_path


def test_the_link_to_our_package_is_one_for_all_processes_and_comes_again(temporary: Path) -> None:
    """Processes are killed, and each would leave a folder behind."""
    folder = Path(own_packages())
    assert folder.parent == temporary / f"penstock-{os.getuid()}"
    assert [each.name for each in folder.iterdir()] == ["penstock"]
    assert (folder / "penstock" / "errors.py").is_file()
    assert own_packages() == str(folder)
    shutil.rmtree(folder.parent)
    assert own_packages() == str(folder)
    assert (folder / "penstock" / "errors.py").is_file()


def test_it_is_not_where_others_may_write(temporary: Path) -> None:
    (temporary / f"penstock-{os.getuid()}").mkdir(mode=0o777)
    (temporary / f"penstock-{os.getuid()}").chmod(0o777)
    environment._folder_of_this_process.cache_clear()
    folder = Path(own_packages())
    assert folder.parent == temporary
    assert own_packages() == str(folder)
    environment._folder_of_this_process.cache_clear()
