"""What an endpoint is, where nothing is said, and which model an instance loads."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.deployment.deployment import (
    AsyncSpec,
    DeploymentSpec,
    ManagedScaling,
    ModelSource,
    PoolSpec,
    VariantSpec,
)

MODEL, OTHER = ModelSource(model_name="m"), ModelSource(model_name="other")
VARIANT = VariantSpec(name="v", model=MODEL, instance_type="ml.a", instance_count=1)


def deployment(*variants: VariantSpec) -> DeploymentSpec:
    return DeploymentSpec(endpoint="e", generation=1, config_name="c", variants=variants)


def test_an_instance_loads_the_model_of_its_pool_else_the_variants() -> None:
    pools = (PoolSpec(instance_type="ml.a"), PoolSpec(instance_type="ml.b", model=OTHER))
    variant = replace(VARIANT, pools=pools)
    assert [variant.model_on(kind) for kind in ("ml.a", "ml.b", "ml.c")] == [MODEL, OTHER, MODEL]
    assert VARIANT.model_on("ml.a") == MODEL
    assert replace(VARIANT, model=None).model_on("ml.a") is None


def test_one_variant_makes_an_endpoint_take_components_or_be_a_guest() -> None:
    empty, guest = replace(VARIANT, model=None), replace(VARIANT, guest=True)
    assert not deployment(VARIANT).takes_components
    assert deployment(VARIANT, empty).takes_components
    assert not deployment(VARIANT).guest
    assert deployment(VARIANT, guest).guest


def test_what_createmodel_leaves_out() -> None:
    """A target model stays loaded when it is idle, and its containers may reach the network."""
    assert (MODEL.multi_model, MODEL.keeps_models, MODEL.network_isolated) == (False, True, False)


def test_what_an_endpoint_configuration_leaves_out() -> None:
    """Of a pool: the first priority. Of managed scaling: any number of instances is stopped at
    once, a minute apart. Of a variant: it is no guest, and no guest's cores are bounded."""
    assert PoolSpec(instance_type="ml.a").priority == 1
    managed = ManagedScaling(instances_min=1, instances_max=2)
    assert (managed.strategy, managed.step_max, managed.cooldown_s) == ("IDLE_RELEASE", 0, 60.0)
    assert (VARIANT.guest, VARIANT.cores_max, VARIANT.weight) == (False, 0, 1.0)
    assert (VARIANT.prefix_length_max, VARIANT.concurrency_threshold) == (0, 0)
    # SageMaker's documented limits for a download and for a container's health check to pass
    assert (VARIANT.download_timeout_s, VARIANT.startup_timeout_s) == (3600.0, 600.0)


def test_an_asynchronous_endpoint_without_settings_notifies_nobody() -> None:
    spec = AsyncSpec(output_uri="s3://out/")
    assert (spec.concurrency_max, spec.answer_in_success, spec.answer_in_error) == (0, False, False)
    made = deployment(VARIANT)
    assert (made.metrics_publish_s, made.metrics_enhanced) == (0, False)
