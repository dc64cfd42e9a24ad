"""What apply files ask for: artifacts in places, and calls of SageMaker's API, word for word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kit.package_files import echo_packages, write

from penstock.core.apply.plan import ArtifactPlace, Content
from penstock.errors import PenstockError
from penstock.packaging import manifest
from penstock.packaging.apply_spec import read_apply
from penstock.packaging.build import build
from penstock.packaging.package_spec import read_packages
from penstock.packaging.wishes import Deployment, deployment

MANY = """\
schema: 1
stack: support
location: s3://models/support
endpoints:
  - name: embed
    mode: MultiModel
    instance_type: ml.local.large
    count: 2
    cache: Disabled
    environment: {THREADS: "2"}
    tags: {team: search}
    models:
      - kind: echo
      - {package: "echo-${each}", as: "vip/${each}.tar.gz", for_each: [acme]}
"""
SINGLE = """\
schema: 1
stack: support
location: {location}
endpoints:
  - name: shop
    package: echo-acme
    image: local://python
  - name: canary
    count: 3
    variants:
      - {{name: old, package: echo-acme, version: "1", weight: 9}}
      - {{name: new, package: echo-acme, weight: 1, instance_type: ml.local.large, count: 1}}
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """`echo-acme` and `echo-best`, in the versions 1 and 2."""
    for version in ("1", "2"):
        file = echo_packages(tmp_path, ["acme", "best"], version=version)
        build(read_packages(file), tmp_path / "build")
    return tmp_path


def asked(root: Path, text: str, **versions: str) -> Deployment:
    specs = read_apply(write(root, {"apply.yaml": text}) / "apply.yaml")
    manifests = {spec.build: manifest.load(spec.build) for spec in specs}
    return deployment(specs, manifests, versions=versions)


def content(root: Path, name: str, version: str) -> Content:
    package = manifest.load(root / "build").find(name, version)
    return Content(digest=package.digest, size=package.size)


def test_an_endpoint_of_many_models_knows_their_prefix_alone(packages: Path) -> None:
    """So that a model that comes or is replaced is an upload and nothing else."""
    made = asked(packages, MANY)
    [endpoint] = made.endpoints
    [model] = endpoint.models
    assert made.requests[model] == {
        "ModelName": model,
        "PrimaryContainer": {
            "Mode": "MultiModel",
            "ModelDataUrl": "s3://models/support/embed/",
            "MultiModelConfig": {"ModelCacheSetting": "Disabled"},
            "Environment": {"THREADS": "2"},
        },
    }
    assert made.requests[endpoint.config] == {
        "EndpointConfigName": endpoint.config,
        "ProductionVariants": [
            {
                "VariantName": "AllTraffic",
                "ModelName": model,
                "InstanceType": "ml.local.large",
                "InitialInstanceCount": 2,
                "InitialVariantWeight": 1.0,
            }
        ],
    }
    assert (model, endpoint.config) == ("embed-3ffafb8425", "embed-6786e49952")
    assert endpoint.tags == {"team": "search", "penstock:stack": "support"}
    prefix = "s3://models/support/embed/"
    assert made.artifacts == {
        ArtifactPlace(prefix, "echo-acme.tar.gz"): content(packages, "echo-acme", "2"),
        ArtifactPlace(prefix, "echo-best.tar.gz"): content(packages, "echo-best", "2"),
        ArtifactPlace(prefix, "vip/acme.tar.gz"): content(packages, "echo-acme", "2"),
    }
    assert asked(packages, MANY, **{"echo-acme": "1"}).endpoints == made.endpoints


def test_an_endpoint_of_one_model_has_an_archive_that_is_named_for_its_content(
    packages: Path,
) -> None:
    made = asked(packages, SINGLE.format(location="models"))
    shop, canary = made.endpoints
    folder = f"{(packages / 'models').as_uri()}/"
    known = manifest.load(packages / "build")
    files = {version: known.find("echo-acme", version).file for version in ("1", "2")}
    assert made.requests[shop.models[0]]["PrimaryContainer"] == {
        "ModelDataUrl": f"{folder}shop/{files['2']}",
        "Image": "local://python",
    }
    variants = made.requests[canary.config]["ProductionVariants"]
    assert [
        (each["VariantName"], each["InitialVariantWeight"], each["InitialInstanceCount"])
        for each in variants
    ] == [("old", 9.0, 3), ("new", 1.0, 1)]
    assert [
        made.requests[each["ModelName"]]["PrimaryContainer"]["ModelDataUrl"] for each in variants
    ] == [f"{folder}canary/{files['1']}", f"{folder}canary/{files['2']}"]
    assert made.locations() == [f"{folder}canary/", f"{folder}shop/"]
    assert (
        made.sources[ArtifactPlace(f"{folder}shop/", files["2"])] == packages / "build" / files["2"]
    )


def test_a_version_given_by_name_goes_before_the_file(packages: Path) -> None:
    """Rolling back is asking for the earlier version: the names are those of the day."""
    text = SINGLE.format(location="s3://models")
    now, back = asked(packages, text), asked(packages, text, **{"echo-acme": "1"})
    then = asked(
        packages, text.replace("package: echo-acme\n", 'package: echo-acme\n    version: "1"\n')
    )
    assert back.endpoints[0] == then.endpoints[0]
    assert back.endpoints[0] != now.endpoints[0]


def edited(change: tuple[str, str]) -> str:
    assert change[0] in MANY
    return MANY.replace(*change)


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (("kind: echo", "kind: other"), "package-not-found", "no packages of kind other"),
        (("kind: echo", "package: other-*"), "package-not-found", "named other-*"),
        (("kind: echo", "package: other"), "package-not-found", "no package 'other'"),
        (("kind: echo", 'kind: echo\n        version: "3"'), "package-not-found", "of kind echo"),
        (("vip/${each}", "echo-best"), "spec-invalid", "two packages would lie at"),
    ],
)
def test_what_can_not_be_is_told(
    packages: Path, change: tuple[str, str], code: str, told: str
) -> None:
    with pytest.raises(PenstockError) as caught:
        asked(packages, edited(change))
    assert caught.value.code == code
    assert told in caught.value.message
    assert caught.value.hint


def test_an_endpoint_is_asked_for_in_one_file_only(packages: Path) -> None:
    write(packages / "stack", {"a.yaml": MANY, "b.yaml": MANY.replace("embed", "EMBED")})
    specs = read_apply(packages / "stack")
    known: dict[Path, Any] = {spec.build: manifest.load(packages / "build") for spec in specs}
    with pytest.raises(PenstockError) as caught:
        deployment(specs, known)
    assert "is in several files" in caught.value.message
