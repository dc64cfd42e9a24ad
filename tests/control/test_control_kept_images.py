"""What the names of images stand for, in the records of endpoints; and which names are in use."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.kit import databases

from penstock.control.store.images import keep_images, named_images
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec

ONE = ModelSource(model_name="m", image="reg.io/one:1")
SEVERAL = ModelSource(
    model_name="s", containers=(ONE, ModelSource(model_name="s", image="reg.io/two:1"))
)
IMAGES = {"reg.io/one:1": ("id-1", "reg.io/one@sha256:1"), "reg.io/two:1": ("id-2", "")}


def spec(model: ModelSource) -> DeploymentSpec:
    variant = VariantSpec(name="all", model=model, instance_type="ml.local.small", instance_count=1)
    return DeploymentSpec(endpoint="e", generation=1, config_name="c", variants=(variant,))


def stored(store: Store, name: str) -> ModelSource:
    target = store.describe_endpoint(name).target
    assert target is not None
    model = target.variants[0].model
    assert model is not None
    return model


def test_the_first_copy_says_what_an_image_is_and_no_later_one(tmp_path: Path) -> None:
    with closing(databases.opened(tmp_path / "db")) as store:
        store.create_endpoint("e", spec(ONE), arn="a", now=1.0)
        assert keep_images(store, "e", 1, IMAGES)
        kept = replace(ONE, image_id="id-1", image_resolved="reg.io/one@sha256:1")
        assert stored(store, "e") == kept
        assert not keep_images(store, "E", 1, {"reg.io/one:1": ("id-9", "other")})
        assert stored(store, "e") == kept
        assert not keep_images(store, "e", 7, IMAGES)
        assert not keep_images(store, "transform-job/none", 1, IMAGES)


def test_each_container_has_its_own(tmp_path: Path) -> None:
    with closing(databases.opened(tmp_path / "db")) as store:
        store.create_endpoint("e", spec(SEVERAL), arn="a", now=1.0)
        assert keep_images(store, "e", 1, IMAGES)
        assert [one.image_id for one in stored(store, "e").containers] == ["id-1", "id-2"]


def test_names_of_models_and_of_endpoints_are_in_use(tmp_path: Path) -> None:
    with closing(databases.opened(tmp_path / "db")) as store:
        store.create_endpoint("e", spec(ONE), arn="a", now=1.0)
        request = {"ModelName": "n", "PrimaryContainer": {"Image": "reg.io/three:1"}}
        store.create_model("n", request, arn="b", now=1.0)
        asked = ["reg.io/one:1", "reg.io/three:1", "reg.io/three", "reg.io/four:1"]
        assert named_images(store, asked) == {"reg.io/one:1", "reg.io/three:1"}
        store.delete_model("n")
        assert named_images(store, asked) == {"reg.io/one:1"}
