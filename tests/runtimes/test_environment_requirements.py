"""Requirements of an artifact: read strictly, the same wishes give the same set."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.environments import wheel

from penstock.errors import CallerError
from penstock.runtimes.environments import images, nearest
from penstock.runtimes.environments.interpreters import own
from penstock.runtimes.environments.requirements import RequirementSet, read_requirements
from penstock.runtimes.environments.spec import EnvironmentSpec, without_named

CODE = "code/inference.py"


def read(root: Path, text: str, **more: object) -> RequirementSet:
    (root / "code").mkdir(parents=True, exist_ok=True)
    (root / "code" / "requirements.txt").write_text(text)
    return read_requirements(root, CODE, **more)  # type: ignore[arg-type]


def test_lines_are_normalized(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "# what we need\n"
        "Scikit_Learn == 1.2.2   # not newer\n"
        "pandas<3,>=2 ; python_version > '3.8'\n"
        "transformers [torch, Sentencepiece]\n"
        "numpy \\\n  <2\n\n",
    )
    assert found.lines == (
        "numpy<2",
        "pandas<3,>=2 ; python_version > '3.8'",
        "scikit-learn==1.2.2",
        "transformers[sentencepiece,torch]",
    )


def test_the_same_wishes_have_one_key(tmp_path: Path) -> None:
    one = read(tmp_path / "a", "numpy<2\nScikit-Learn==1.2.2\n")
    two = read(tmp_path / "b", "scikit_learn == 1.2.2  # pinned\n\nnumpy <2\n")
    other = read(tmp_path / "c", "scikit_learn == 1.2.3\nnumpy <2\n")
    keys = [EnvironmentSpec(python=own(), requirements=each).key for each in (one, two, other)]
    assert keys[0] == keys[1] != keys[2]


def test_a_wheel_s_content_is_part_of_the_key(tmp_path: Path) -> None:
    keys = set()
    for folder, text in (("a", "X = 1\n"), ("b", "X = 2\n")):
        wheel(tmp_path / folder / "code" / "wheels", "tiny", "1.0", {"tiny.py": text})
        found = read(tmp_path / folder, "tiny\n")
        keys.add(EnvironmentSpec(python=own(), requirements=found).key)
    assert len(keys) == 2


def test_files_that_a_file_names_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "code" / "more").mkdir(parents=True)
    (tmp_path / "code" / "more" / "base.txt").write_text("orjson\n")
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    found = read(tmp_path, "-r more/base.txt\n--constraint=limits.txt\n--no-index\n--pre\n")
    assert found.lines == ("orjson",)
    assert found.constraints == ("numpy<2",)
    assert found.options == ("--pre",)
    assert found.no_index


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://elsewhere.example/simple",
        "-i https://elsewhere.example/simple",
        "--extra-index-url=https://elsewhere.example/simple",
        "--trusted-host elsewhere.example",
        "--find-links https://elsewhere.example/wheels",
        "--find-links file:///etc",
        "--find-links /etc",
        "--find-links ../../..",
        "-r /etc/passwd",
        "-r ../../../etc/passwd",
        "-c https://elsewhere.example/limits.txt",
        "-e .",
        "--editable=git+https://elsewhere.example/x.git",
        "--global-option=--x",
        "--config-settings=a=b",
        "file:///etc/passwd",
        "file:///etc/x-1.0-py3-none-any.whl",
        "../../x-1.0-py3-none-any.whl",
        "/etc/x-1.0-py3-none-any.whl",
        "./setup",
        "git+https://elsewhere.example/x.git",
        "tiny @ https://elsewhere.example/tiny-1.0-py3-none-any.whl",
        "tiny @ file:///etc/tiny-1.0-py3-none-any.whl",
        "tiny; $(touch /tmp/x)",
        "tiny==1.0 && touch /tmp/x",
        "tiny==`id`",
        "tiny==${SECRET}",
        "tiny --hash=sha256:short",
        "-r requirements.txt",
    ],
)
def test_what_would_choose_another_source_is_refused_by_name(tmp_path: Path, line: str) -> None:
    with pytest.raises(CallerError) as refused:
        read(tmp_path, f"numpy\n{line}\n")
    assert refused.value.code == "requirements-refused"
    assert "code/requirements.txt" in refused.value.message
    assert refused.value.hint


def test_a_link_out_of_the_artifact_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("numpy\n")
    root = tmp_path / "artifact"
    (root / "code").mkdir(parents=True)
    (root / "code" / "more.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(CallerError, match="leads out of the artifact"):
        read(root, "-r more.txt\n")


def test_the_operator_may_allow_an_index(tmp_path: Path) -> None:
    line = "--extra-index-url https://wheels.example/simple/team\n"
    found = read(tmp_path, line + "numpy\n", allowed=("https://wheels.example/simple/",))
    assert found.options == ("--extra-index-url", "https://wheels.example/simple/team")
    with pytest.raises(CallerError):
        read(tmp_path, line, allowed=("https://wheels.example/other/",))


def test_a_model_s_own_requirements_go_before_its_image_s(tmp_path: Path) -> None:
    found = read(tmp_path, "Scikit-Learn==1.4.2\n")
    assert without_named(("scikit-learn==1.2.1", "numpy<2"), found) == ("numpy<2",)


ECR = "683313688378.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "first"),
    [
        (f"{ECR}/sagemaker-scikit-learn:0.23-1-cpu-py3", "scikit-learn==0.23.2"),
        (f"{ECR}/sagemaker-scikit-learn:1.2-1", "scikit-learn==1.2.1"),
        ("246618743249.dkr.ecr.eu-west-1.amazonaws.com/sagemaker-xgboost:1.7-1", "xgboost==1.7.4"),
        (f"{ECR}/sagemaker-xgboost:3.0-5", "xgboost==3.0.5"),
        (f"{ECR}/pytorch-inference:2.6.0-cpu-py312-ubuntu22.04-sagemaker", "torch==2.6.0"),
        (f"{ECR}/pytorch-inference:2.6-gpu-py312", "torch==2.6.*"),
        (f"{ECR}/tensorflow-inference:2.16-cpu", "tensorflow==2.16.*"),
    ],
)
def test_an_image_s_name_stands_for_its_framework(image: str, first: str) -> None:
    assert images.requirements_of(image, {})[0] == first


def test_a_hugging_face_image_has_two_frameworks() -> None:
    image = f"{ECR}/huggingface-pytorch-inference:2.1.0-transformers4.37.0-cpu-py310-ubuntu22.04"
    assert {"torch==2.1.0", "transformers==4.37.0"} <= set(images.requirements_of(image, {}))


@pytest.mark.parametrize(
    "image",
    ["", "nginx:1.2", f"{ECR}/sagemaker-scikit-learn", f"{ECR}/djl-inference:0.27.0-cpu",
     f"{ECR}/huggingface-pytorch-tgi-inference:2.3.0-tgi2.2.0-gpu"],
)  # fmt: skip
def test_other_images_stand_for_nothing(image: str) -> None:
    assert images.requirements_of(image, {}) == ()


def test_the_operator_s_own_table_goes_first() -> None:
    own_table = {"*/sagemaker-scikit-learn:1.2*": ("scikit-learn==1.2.2",), "team/": ("numpy",)}
    image = f"{ECR}/sagemaker-scikit-learn:1.2-1"
    assert images.requirements_of(image, own_table) == ("scikit-learn==1.2.2",)
    assert images.requirements_of("team/own:7", own_table) == ("numpy",)


def test_an_image_s_version_goes_before_the_file_s() -> None:
    found = images.merged(("xgboost==1.7.4", "numpy<2"), ("xgboost>=1.6", "scikit-learn"))
    assert found == ("xgboost==1.7.4", "numpy<2", "scikit-learn")


def test_the_versions_that_pip_lists_can_be_installed() -> None:
    told = ["ERROR: no version of x==1.2.1 (from versions: 1.5.2, 1.3.1, 1.2.2)", "ERROR: x"]
    assert nearest.nearest("1.2.1", told) == "1.2.2"


def test_without_a_list_no_version_is_nearest() -> None:
    assert nearest.nearest("1.2.1", ["ERROR: No matching distribution found"]) == ""
