"""Files of tests that take long, with the seconds that they take on two cores, roughly.

They begin first: a long file that begins last keeps one worker busy alone. Only their order counts;
`make test` tells at its end which tests took longest.
"""

from __future__ import annotations

from typing import Final

SECONDS: Final[dict[str, int]] = {
    "tests/compile/test_compile.py": 300,
    "tests/docs/test_pages_other_half.py": 180,
    "tests/docs/test_pages.py": 120,
    "tests/system/test_uncompiled_models.py": 130,
    "tests/system/test_ray_fleet.py": 120,
    "tests/system/test_state_of_what_is_gone_inside.py": 100,
    "tests/system/test_state_of_what_is_gone.py": 90,
    "tests/system/test_full_disks.py": 90,
    "tests/runtimes/predictors/test_answers.py": 75,
    "tests/system/test_guests_held_still.py": 85,
    "tests/system/test_lm_eval.py": 60,
    "tests/system/test_transform_memory.py": 60,
    "tests/system/test_transform_kills.py": 60,
    "tests/system/test_gateways.py": 60,
    "tests/system/test_sequences_killed.py": 90,
    "tests/system/test_clients_sagemaker_sdk.py": 60,
    "tests/control/test_leader_killed.py": 60,
    "tests/system/test_scaling.py": 60,
    "tests/system/test_places.py": 50,
    "tests/system/test_hung.py": 50,
    "tests/system/test_asynchronous.py": 45,
    "tests/system/test_leader.py": 45,
    "tests/system/test_transform.py": 40,
    "tests/system/test_schedules.py": 35,
    "tests/system/test_model_memory.py": 35,
    "tests/packaging/test_apply_runs.py": 35,
    "tests/system/test_regions.py": 35,
    "tests/system/test_faults.py": 35,
    "tests/system/test_inference_components.py": 30,
    "tests/system/test_pipeline_doors.py": 30,
    "tests/system/test_clients.py": 30,
    "tests/system/test_access_system.py": 30,
    "tests/fleet/test_fleet_guests.py": 30,
    "tests/system/test_hostile_metrics.py": 30,
    "tests/system/test_hostile_numbers.py": 30,
    "tests/tune/test_tune_procedure.py": 25,
    "tests/system/test_alarms.py": 25,
    "tests/system/test_overload.py": 25,
    "tests/system/test_region_streams.py": 25,
    "tests/system/test_model_metrics_system.py": 25,
    "tests/system/test_target_models.py": 25,
    "tests/examples/test_duplicates_run.py": 20,
    "tests/examples/test_assistant_pipeline.py": 20,
    "tests/system/test_async_killed.py": 20,
    "tests/system/test_network_isolation.py": 20,
    "tests/system/test_target_models_killed.py": 20,
    "tests/system/test_model_calls_killed.py": 20,
    "tests/examples/test_support_run.py": 15,
    "tests/examples/test_assistant_run.py": 15,
    "tests/examples/test_assistant_web.py": 15,
    "tests/system/test_nemesis.py": 15,
}
