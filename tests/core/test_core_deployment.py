"""What a variant is where its configuration says nothing: SageMaker's defaults."""

from __future__ import annotations

from penstock.core.deployment.deployment import ModelSource, VariantRoutes, VariantSpec


def test_a_variant_has_weight_1_an_hour_to_download_and_ten_minutes_to_start() -> None:
    variant = VariantSpec(
        name="blue",
        model=ModelSource(model_name="intent"),
        instance_type="ml.m5.large",
        instance_count=1,
    )
    assert (variant.weight, variant.strategy) == (1.0, "LEAST_OUTSTANDING_REQUESTS")
    assert (variant.download_timeout_s, variant.startup_timeout_s) == (3600.0, 600.0)


def test_prompts_are_not_looked_at_unless_a_length_is_said() -> None:
    spec = VariantSpec(
        name="blue",
        model=ModelSource(model_name="intent"),
        instance_type="ml.m5.large",
        instance_count=1,
    )
    routes = VariantRoutes(name="blue", weight=1.0, strategy="RANDOM", copies=())
    for said in (spec, routes):
        assert (said.prefix_length_max, said.concurrency_threshold) == (0, 0)
