"""Which fast tests concern a module: what `make mutants` runs against its mutants.

Fast means: in one process, without a server of its own, a second or two for a file. A new module of
these folders gets a row here; `tests/tools/test_mutants.py` holds that.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "penstock"
#: folders and files whose every module has a row
COVERED = ("core", "gateway", "wire", "artifacts", "file_schema.py", "metrics/series/sketch.py")

_AWS = tuple(
    f"wire/test_aws_{name}.py"
    for name in (
        *("bounds", "eventstream", "http", "json", "models", "query", "rest_json"),
        *("sigv4", "validate", "bearer", "fuzz", "boto3"),
        *("vectors_protocols", "vectors_eventstream", "values", "locations"),
        *("json_edges", "validate_edges", "faults"),
    )
)
_HPACK = ("wire/test_http2_hpack.py", "wire/test_http2_oracle.py")
_HTTP2 = (
    "wire/test_http2_connection.py",
    "wire/test_http2_early_answers.py",
    "wire/test_http2_floods.py",
    "wire/test_http2_oracle.py",
    "wire/test_http2_whole_answers.py",
)
_HTTP2_DRIVER = ("gateway/test_http2_listener_state.py", "gateway/test_http2_protocol.py")
_HTTP_OVER_HTTP2 = (
    "gateway/test_http2_answers.py",
    "gateway/test_http2_requests.py",
    "api/test_doors_over_http2.py",
)
_HTTP = (
    "gateway/test_answer_pipeline.py",
    "gateway/test_asgi.py",
    "gateway/test_listener.py",
    *(
        f"gateway/test_http_{name}.py"
        for name in (
            *("answers", "bodies", "connection", "growth", "limits", "names", "streams", "tls"),
        )
    ),
)
_COMPARING = (
    "gateway/test_comparing.py",
    "gateway/test_comparing_streams.py",
    "gateway/test_scoring.py",
)
_DISPATCH = (
    "gateway/test_dispatcher.py",
    "gateway/test_dispatcher_async.py",
    "gateway/test_dispatcher_bounds.py",
    "gateway/test_dispatcher_copies.py",
    "gateway/test_dispatcher_speeds.py",
    "gateway/test_dispatcher_streams.py",
    "gateway/test_mirroring.py",
    "gateway/test_retries.py",
    "gateway/test_newcomers.py",
    "gateway/test_awaited_reply.py",
    "gateway/test_responders_that_raise.py",
)
_LINK = (
    "gateway/test_frame_link.py",
    "gateway/test_link.py",
    "gateway/test_paused_links.py",
    "gateway/test_torn_frames.py",
    "gateway/test_byzantine_instance.py",
)
_ROUTING = (
    "core/routing/test_routing_generations.py",
    "core/test_core_routing.py",
    "core/test_core_routing_others.py",
    "core/test_core_routing_components.py",
    "core/test_core_routing_prefix.py",
    "core/test_core_routing_sessions.py",
    "core/test_core_routing_properties.py",
    "core/test_core_routing_speeds.py",
)
_TRAFFIC = (
    "core/traffic/test_traffic_router.py",
    "core/traffic/test_traffic_properties.py",
)
_RECONCILE = (
    "core/test_core_reconcile.py",
    "core/test_core_reconcile_components.py",
    "core/test_core_reconcile_inference_components.py",
    "core/test_core_reconcile_properties.py",
    "core/test_core_reconcile_shadows.py",
)
_PLACEMENT = (
    "core/test_core_placement.py",
    "core/test_core_placement_search.py",
    "core/test_core_instance_room.py",
)
_BLAME = (
    "core/blame/test_blame_crash_loop.py",
    "core/blame/test_blame_crashed_instances.py",
    "core/blame/test_blame_poison_requests.py",
)
_BATCHING = (
    "core/test_core_batching.py",
    "core/test_core_batching_levels.py",
    "core/test_core_batching_properties.py",
)
_RESIDENCY = tuple(
    f"core/residency/test_residency_{name}.py"
    for name in ("requests", "room", "lifecycle", "memory", "evictor", "complaints", "explain")
)
_SCALING = (
    "core/scaling/test_scaling_machine.py",
    "core/scaling/test_scaling_crash.py",
    "core/scaling/test_scaling_zero.py",
    "core/scaling/test_scaling_schedules.py",
    "core/scaling/test_scaling_fast.py",
)
_PREPARE = (
    "artifacts/test_artifact_prepare.py",
    "artifacts/test_artifact_cache.py",
    "artifacts/test_artifact_submitted_code.py",
)
_DETECT = (
    "artifacts/test_artifact_detect.py",
    "artifacts/test_artifact_exports.py",
    "artifacts/test_artifact_pt2.py",
    "artifacts/test_artifact_triton.py",
    "artifacts/test_artifact_generation.py",
    "artifacts/test_artifact_model_yaml.py",
)
_PREDICTORS = (
    "runtimes/predictors/test_answers.py",
    "runtimes/predictors/test_hostile_files.py",
    "runtimes/predictors/test_algorithm.py",
)
_FOREIGN = ("artifacts/test_artifact_foreign_files.py",)
_MODEL_YAML = ("artifacts/test_artifact_model_yaml_edges.py", *_DETECT)
_TRITON = (
    "artifacts/test_artifact_triton_edges.py",
    "artifacts/test_artifact_pbtxt.py",
    "artifacts/test_artifact_triton.py",
)

#: module (below src/penstock) -> test files (below tests)
TESTS_OF: dict[str, tuple[str, ...]] = {
    "core/request/admission.py": ("core/test_core_admission.py",),
    "core/apply/plan.py": (
        "core/test_core_apply_plan.py",
        "core/test_core_versioned_names.py",
    ),
    "core/deployment/slot_retries.py": ("core/test_core_attempts.py", *_RECONCILE),
    "core/backoff.py": ("core/test_core_backoff.py",),
    "core/batching/rate_limiter.py": ("core/test_core_rate_limiter.py",),
    "core/batching/response_cache.py": ("core/test_core_response_cache.py",),
    "core/batching/response_order.py": ("core/test_core_response_order.py",),
    "core/deployment/served_names.py": ("core/deployment/test_core_served_names.py",),
    "core/deployment/shadow_tag.py": (
        "core/deployment/test_core_shadow_tag.py",
        "api/test_sagemaker_component_shadows.py",
    ),
    "core/deployment/served_targets.py": ("core/rollout/test_rollout_targets.py",),
    "core/endpoint/target_rollouts.py": ("core/rollout/test_rollout_targets.py",),
    "core/request/forwarded_headers.py": ("core/test_core_forwarded_headers.py",),
    "core/request/server_settings.py": ("core/test_core_server_settings.py",),
    "gateway/dispatch/capture_records.py": ("gateway/test_dispatch_capture.py",),
    "gateway/dispatch/capture.py": ("gateway/test_dispatch_capture.py",),
    "gateway/dispatch/targets.py": ("gateway/test_dispatch_targets.py",),
    "gateway/dispatch/served_names.py": (
        "gateway/test_served_names.py",
        "api/test_served_name_doors.py",
    ),
    "core/batching/caller_settings.py": ("core/test_core_caller_settings.py",),
    "core/batching/spec.py": _BATCHING,
    "core/batching/batcher.py": (
        *_BATCHING,
        "core/test_core_service_level.py",
        "core/test_core_run_here.py",
    ),
    "core/batching/waiting_items.py": (*_BATCHING, "core/test_core_service_level.py"),
    "core/blame/bisection.py": ("core/blame/test_blame_bisection.py",),
    "core/blame/death_limits.py": (
        "core/blame/test_blame_crash_loop.py",
        *_BLAME,
    ),
    "core/blame/crashed_instances.py": ("core/blame/test_blame_crashed_instances.py",),
    "core/blame/poison_requests.py": ("core/blame/test_blame_poison_requests.py",),
    "core/request/body_budget.py": ("core/test_core_body_budget.py",),
    "core/models/instruction_sets.py": ("core/test_core_builds.py",),
    "core/endpoint/capacity.py": (
        "core/test_core_capacity.py",
        "core/test_core_instance_pools.py",
        *_RECONCILE,
    ),
    "core/endpoint/adapters.py": (
        "core/components/test_component_adapters.py",
        *_RECONCILE,
    ),
    "core/endpoint/component_life.py": (
        "core/components/test_component_life.py",
        *_RECONCILE,
        "core/components/test_component_rollout.py",
    ),
    "core/endpoint/component_memory.py": ("core/components/test_component_memory.py",),
    "core/deployment/capacity_spec.py": (
        "core/components/test_component_rollout.py",
        *_RECONCILE,
        "core/test_core_endpoint_state.py",
        "core/deployment/test_core_shadow_tag.py",
    ),
    "core/deployment/deployment.py": (
        "core/deployment/test_deployment_specs.py",
        "core/test_core_endpoint_state.py",
        "core/test_core_reconcile.py",
        "gateway/test_endpoint_table.py",
        *_ROUTING,
    ),
    "core/servers/election.py": ("core/test_core_election.py",),
    "core/servers/server_size.py": ("core/test_core_server_size.py",),
    "core/endpoint/endings.py": ("core/test_core_endings.py", *_RECONCILE),
    "core/deployment/endpoint_state.py": ("core/test_core_endpoint_state.py", *_RECONCILE),
    "core/endpoint/reconcile.py": (
        "core/test_core_final_failures.py",
        *_RECONCILE,
    ),
    "core/batching/generation_steps.py": ("core/test_core_generation_steps.py",),
    "core/endpoint/generation.py": ("core/test_core_component_properties.py", *_RECONCILE),
    "core/request/grants.py": ("core/test_core_grants.py",),
    "core/request/head_check.py": ("core/test_core_head_check.py",),
    "core/machine/container_hints.py": ("core/test_core_container_hints.py",),
    "core/machine/containers.py": ("core/test_core_containers.py",),
    "core/machine/devices.py": ("core/test_core_devices.py",),
    "core/machine/images.py": ("core/test_core_images.py",),
    "core/machine/guest_start.py": ("core/test_core_guest_start.py",),
    "core/machine/stopped.py": ("core/test_core_stopped.py",),
    "core/request/host_gate.py": ("core/test_core_host_gate.py",),
    "core/batching/hot_shapes.py": ("core/test_core_hot_shapes.py",),
    "core/batching/packed_sizes.py": ("core/test_core_packed_sizes.py",),
    "core/models/nearest_version.py": ("core/models/test_models_nearest_version.py",),
    "core/models/runtime_choice.py": ("core/models/test_models_runtime_choice.py",),
    "core/models/idle_warm_up.py": ("core/test_core_idle_warm_up.py",),
    "core/endpoint/instance_room.py": (
        *_PLACEMENT,
        "core/test_core_packing.py",
    ),
    "core/capture/queue.py": ("core/capture/test_capture_queue.py",),
    "core/experiments/configurations.py": ("core/experiments/test_experiment_configurations.py",),
    "core/experiments/machine.py": ("core/experiments/test_experiment_machine.py",),
    "core/jobs/asynchronous.py": ("core/test_jobs_asynchronous.py",),
    "core/jobs/asynchronous_actions.py": (
        "core/test_jobs_asynchronous.py",
        "core/test_jobs_invocations.py",
    ),
    "core/jobs/capacity.py": ("core/jobs/test_jobs_capacity.py",),
    "core/jobs/container.py": ("core/jobs/test_jobs_container.py",),
    "core/jobs/invocations.py": ("core/test_jobs_invocations.py",),
    "core/jobs/job.py": (
        "core/jobs/test_jobs_job.py",
        "core/jobs/test_jobs_job_properties.py",
    ),
    "core/jobs/job_actions.py": ("core/jobs/test_jobs_job.py",),
    "core/jobs/progress.py": (
        "core/jobs/test_jobs_progress.py",
        "core/jobs/test_jobs_job.py",
    ),
    "core/jobs/queue.py": ("core/jobs/test_jobs_queue.py",),
    "core/jobs/schedules.py": ("core/jobs/test_jobs_schedules.py",),
    "core/jobs/spec.py": (
        "core/jobs/test_jobs_shares.py",
        "core/test_jobs_spans.py",
        "records/test_records_job_values.py",
    ),
    "core/endpoint/managed_instances.py": ("core/test_core_managed_instances.py", *_RECONCILE),
    "core/models/memory_need.py": ("core/test_core_memory_need.py",),
    "core/request/nested_calls.py": ("core/test_core_nested_calls.py",),
    "core/pipeline/pipeline.py": ("core/test_core_pipeline.py",),
    "core/pipeline/spec.py": ("core/test_core_pipeline.py",),
    "core/endpoint/placement.py": (*_PLACEMENT, *_RECONCILE),
    "core/endpoint/ready_times.py": ("core/test_core_ready_times.py",),
    "core/rollout/agreement.py": ("core/rollout/test_rollout_agreement.py",),
    "core/rollout/agreement_words.py": ("api/test_agreement_tag.py",),
    "core/rollout/pair_balance.py": ("core/rollout/test_rollout_pair_balance.py",),
    "core/rollout/sequential.py": ("core/rollout/test_rollout_agreement.py",),
    "core/rollout/comparison.py": ("core/rollout/test_rollout_comparison.py",),
    "core/rollout/stream_document.py": ("core/rollout/test_rollout_stream_document.py",),
    "core/rollout/machine.py": ("core/rollout/test_rollout_machine.py",),
    "core/rollout/scorer.py": ("core/rollout/test_rollout_scorer.py",),
    "core/rollout/policy.py": ("core/rollout/test_rollout_machine.py",),
    "core/alarms/evaluate.py": (
        "core/alarms/test_alarm_evaluate.py",
        "core/alarms/test_alarm_properties.py",
        "core/alarms/test_alarm_schedule.py",
    ),
    "core/alarms/words.py": (
        "core/alarms/test_alarm_words.py",
        "core/alarms/test_alarm_evaluate.py",
    ),
    "core/alarms/spec.py": ("core/alarms/test_alarm_evaluate.py",),
    "core/residency/account.py": (
        "core/residency/test_residency_account.py",
        "core/residency/test_residency_full.py",
        *_RESIDENCY,
    ),
    "core/residency/actions.py": _RESIDENCY,
    "core/residency/evictor.py": ("core/residency/test_residency_full.py", *_RESIDENCY),
    "core/residency/loads.py": (
        "core/residency/test_residency_side_by_side.py",
        *_RESIDENCY,
    ),
    "core/residency/machine.py": (
        *_RESIDENCY,
        "core/residency/test_residency_properties.py",
    ),
    "core/residency/model.py": (
        "core/residency/test_residency_model.py",
        *_RESIDENCY,
    ),
    "core/residency/outcomes.py": ("core/residency/test_residency_full.py", *_RESIDENCY),
    "core/residency/spec.py": ("core/residency/test_residency_spec.py", *_RESIDENCY),
    "core/scaling/actions.py": (
        "core/scaling/test_scaling_choose.py",
        *_SCALING,
    ),
    "core/scaling/activity.py": ("core/scaling/test_scaling_activity.py", *_SCALING),
    "core/scaling/choose.py": ("core/scaling/test_scaling_choose.py", *_SCALING),
    "core/scaling/machine.py": _SCALING,
    "core/scaling/metrics.py": ("core/scaling/test_scaling_metrics.py",),
    "core/scaling/observed.py": ("core/scaling/test_scaling_observed.py", *_SCALING),
    "core/scaling/spec.py": (
        "core/scaling/test_scaling_metrics.py",
        *_SCALING,
    ),
    "core/scaling/step.py": ("core/scaling/test_scaling_steps.py",),
    "core/scaling/tracking.py": (
        "core/scaling/test_scaling_tracking.py",
        *_SCALING,
    ),
    "core/request/storage_failures.py": ("core/test_core_storage_failures.py",),
    "core/request/mirroring.py": ("core/test_core_mirroring.py", "gateway/test_mirroring.py"),
    "core/request/retry.py": ("core/test_core_retry.py",),
    "core/request/holding.py": ("core/test_core_holding.py",),
    "core/traffic/push_room.py": ("core/test_core_push_room.py",),
    "core/waiting_lines.py": ("core/test_core_waiting_lines.py", *_TRAFFIC),
    "core/resources.py": ("core/test_core_resources.py", "core/test_core_packing.py"),
    "core/machine/room.py": ("core/test_core_room.py", "core/test_core_guest_room.py"),
    "core/endpoint/routes.py": (
        "core/test_core_routes.py",
        "core/components/test_component_shadows.py",
        *_RECONCILE,
    ),
    "core/endpoint/instance_pools.py": (
        "core/test_core_instance_pools.py",
        "core/test_core_instance_pools_properties.py",
    ),
    "core/routing/copies.py": ("core/routing/test_routing_copies.py", *_ROUTING),
    "core/routing/endpoint.py": _ROUTING,
    "core/routing/outliers.py": (
        "core/test_core_routing_outliers.py",
        "gateway/test_outliers.py",
    ),
    "core/routing/pickers.py": _ROUTING,
    "core/routing/pools.py": _ROUTING,
    "core/routing/prefix_aware.py": _ROUTING,
    "core/routing/prefixes.py": _ROUTING,
    "core/routing/rebalance.py": (
        "core/test_core_rebalance.py",
        "core/test_core_routing_speeds.py",
    ),
    "core/routing/sessions.py": _ROUTING,
    "core/routing/speeds.py": ("core/test_core_routing_speeds.py",),
    "core/routing/strategies.py": _ROUTING,
    "core/learned_times.py": ("core/test_core_learned_times.py",),
    "core/batching/run_here.py": ("core/test_core_run_here.py",),
    "core/batching/run_times.py": (
        "core/test_core_run_times.py",
        *_BATCHING,
        "core/test_core_service_level.py",
    ),
    "core/batching/stepping.py": ("core/test_core_stepping.py",),
    "core/timetable/cron.py": (
        "core/timetable/test_timetable.py",
        "core/timetable/test_hours.py",
    ),
    "core/timetable/timetable.py": (
        "core/timetable/test_timetable.py",
        "core/timetable/test_hours.py",
    ),
    "core/traffic/spec.py": (
        *_TRAFFIC,
        "core/traffic/test_traffic_spec.py",
    ),
    "core/traffic/health.py": ("core/traffic/test_traffic_health.py", *_TRAFFIC),
    "core/traffic/moving_averages.py": (
        "core/traffic/test_traffic_means.py",
        "core/traffic/test_traffic_ratios.py",
    ),
    "core/traffic/outcomes.py": ("core/traffic/test_traffic_outcomes.py",),
    "core/traffic/ratios.py": ("core/traffic/test_traffic_ratios.py",),
    "core/traffic/regions.py": _TRAFFIC,
    "core/traffic/router.py": _TRAFFIC,
    "core/request/trace_context.py": ("core/test_trace_context.py",),
    "core/machine/warm_pool.py": ("core/test_core_warm_pool.py",),
    "core/residency/worker_sharing.py": ("core/test_core_worker_sharing.py",),
    "gateway/http/asgi.py": _HTTP,
    "gateway/dispatch/awaited.py": _DISPATCH,
    "gateway/http/call.py": _HTTP,
    "gateway/channel/channel.py": ("gateway/test_channel.py",),
    "gateway/channel/messages.py": ("gateway/test_channel.py",),
    "gateway/dispatch/deadlines.py": (
        "gateway/test_deadlines.py",
        "gateway/test_draining.py",
        *_DISPATCH,
    ),
    "gateway/http/listener.py": (
        "gateway/test_descriptors.py",
        *_HTTP,
    ),
    "gateway/dispatch/dispatcher.py": (*_DISPATCH, *_COMPARING),
    "gateway/dispatch/target_dispatcher.py": _DISPATCH,
    "gateway/traffic_loads.py": (
        "gateway/test_traffic_loads.py",
        "gateway/test_two_generations.py",
    ),
    "gateway/dispatch/endpoint_table.py": (
        "gateway/test_endpoint_table.py",
        "gateway/test_component_mirroring.py",
        "gateway/test_others_counted.py",
        "gateway/test_two_generations.py",
        *_DISPATCH,
    ),
    "gateway/http/body_budget.py": (*_HTTP, *_DISPATCH),
    "gateway/http/connection.py": (*_HTTP, "gateway/test_known_heads.py"),
    "gateway/http2/connection.py": _HTTP2_DRIVER,
    "gateway/http2/exchange.py": ("gateway/test_http2_exchange.py", *_HTTP2_DRIVER),
    "gateway/http2/listener.py": _HTTP2_DRIVER,
    "gateway/http2/listener_state.py": _HTTP2_DRIVER,
    "gateway/dispatch/invocation.py": ("gateway/test_invocation.py", *_DISPATCH),
    "gateway/http/known_heads.py": ("gateway/test_known_heads.py",),
    "gateway/dispatch/link.py": _LINK,
    "gateway/http/listener_state.py": _HTTP,
    "gateway/http/answer_pipeline.py": _HTTP,
    "gateway/http/proxy.py": ("gateway/test_proxy.py",),
    "gateway/dispatch/mirroring/shadows.py": (
        "gateway/test_mirroring.py",
        "gateway/test_component_mirroring.py",
    ),
    "gateway/dispatch/mirroring/comparing.py": _COMPARING,
    "gateway/dispatch/mirroring/scoring.py": ("gateway/test_scoring.py",),
    "gateway/dispatch/outliers.py": ("gateway/test_outliers.py",),
    "gateway/dispatch/rebalancing.py": ("gateway/test_rebalancing.py",),
    "gateway/dispatch/recording.py": ("gateway/test_recording.py", *_DISPATCH),
    "gateway/dispatch/refusals.py": ("gateway/test_refusals.py", *_DISPATCH, *_HTTP),
    "gateway/request_id.py": ("gateway/test_request_ids.py", *_DISPATCH),
    "gateway/dispatch/sessions.py": (
        "gateway/test_shared_sessions.py",
        "api/test_runtime_sessions.py",
        "gateway/test_dispatcher.py",
    ),
    "gateway/http/shared_port.py": ("gateway/test_shared_port.py",),
    "gateway/dispatch/shared_sessions.py": ("gateway/test_shared_sessions.py",),
    "gateway/dispatch/waiting.py": (
        "gateway/test_newcomers.py",
        "gateway/test_component_mirroring.py",
        "gateway/test_two_generations.py",
        "core/test_core_holding.py",
        "gateway/test_retries.py",
    ),
    "gateway/dispatch/retries.py": (*_DISPATCH, "core/test_core_retry.py"),
    "gateway/http/first_bytes.py": ("gateway/test_http2_requests.py", "gateway/test_http_tls.py"),
    "gateway/http_server/server.py": ("gateway/test_server.py",),
    "gateway/http_server/listener.py": _HTTP_OVER_HTTP2,
    "gateway/http2/http_answers.py": _HTTP_OVER_HTTP2,
    "gateway/http2/http_connection.py": (*_HTTP_OVER_HTTP2, "gateway/test_http_tls.py"),
    "gateway/http2/http_port.py": _HTTP_OVER_HTTP2,
    "gateway/http2/http_requests.py": _HTTP_OVER_HTTP2,
    "gateway/dispatch/streaming.py": ("gateway/test_stream_seen.py", *_DISPATCH),
    "gateway/dispatch/stream_parts.py": (
        "gateway/test_comparing_streams.py",
        "gateway/test_dispatch_capture.py",
    ),
    "core/batching/sequences.py": ("core/test_core_sequences.py",),
    "core/request/shared_regions.py": ("core/test_core_shared_regions.py",),
    "core/routing/sequences.py": ("core/test_core_routing_sequences.py",),
    "gateway/dispatch/sequences.py": ("gateway/test_sequence_bodies.py",),
    "gateway/shared_memory.py": ("gateway/test_client_shared_memory.py",),
    "gateway/timers.py": ("gateway/test_loop_timers.py", *_DISPATCH),
    "gateway/tracing/tracing.py": (
        "gateway/test_otlp_spans.py",
        "gateway/test_tracing.py",
    ),
    "gateway/http/tls.py": ("gateway/test_tls_acceptor.py", "gateway/test_http_tls.py"),
    "wire/capture_lines.py": ("wire/test_capture_lines.py",),
    "wire/aws/bearer.py": _AWS,
    "wire/aws/errors.py": _AWS,
    "wire/aws/eventstream.py": _AWS,
    "wire/aws/http.py": _AWS,
    "wire/aws/json_rpc.py": _AWS,
    "wire/aws/json_values.py": _AWS,
    "wire/aws/models.py": _AWS,
    "wire/aws/patterns.py": (*_AWS, "architecture/test_linear_patterns.py"),
    "wire/aws/query.py": _AWS,
    "wire/aws/rest_json.py": (*_AWS,),
    "wire/aws/sigv4.py": (
        "wire/test_aws_sigv4.py",
        "wire/test_aws_bounds.py",
        "wire/test_aws_vectors_sigv4.py",
    ),
    "wire/aws/validate.py": _AWS,
    "wire/aws/values.py": _AWS,
    "wire/frames.py": (
        "wire/test_frames.py",
        "wire/test_frame_bounds.py",
        "wire/test_stall.py",
    ),
    "wire/grpc_health.py": ("api/test_oip_grpc_health.py",),
    "wire/grpc_messages.py": ("wire/test_grpc_messages.py",),
    "wire/grpc_reflection.py": ("api/test_oip_grpc_reflection.py",),
    "wire/http2/allowance.py": _HTTP2,
    "wire/http2/connection.py": _HTTP2,
    "wire/http2/control_frames.py": _HTTP2,
    "wire/http2/events.py": _HTTP2,
    "wire/http2/frames.py": ("wire/test_http2_frames.py", *_HTTP2),
    "wire/http2/hpack.py": _HPACK,
    "wire/http2/huffman.py": _HPACK,
    "wire/http2/receiving.py": _HTTP2,
    "wire/http2/request_head.py": _HTTP2,
    "wire/http2/spec.py": _HTTP2,
    "wire/http2/state.py": _HTTP2,
    "wire/http_client.py": ("wire/test_http_client.py", "wire/test_http_pool.py"),
    "wire/http_pool.py": ("wire/test_http_pool.py",),
    "wire/model_config_fields.py": ("wire/test_oip_messages.py",),
    "wire/oip_messages.py": ("wire/test_oip_messages.py", "instance/test_codecs_oip.py"),
    "wire/plain_json.py": ("wire/test_plain_json.py",),
    "wire/protobuf_fields.py": ("wire/test_protobuf_fields.py", "api/test_oip_grpc_stream.py"),
    "wire/protobuf_schema.py": (
        "wire/test_oip_messages.py",
        "instance/test_codecs_oip.py",
        "api/test_oip_grpc_reflection.py",
    ),
    "wire/server_sent_events.py": ("wire/test_server_sent_events.py",),
    "wire/span_notes.py": ("wire/test_span_notes.py",),
    "wire/work_note.py": ("instance/test_work_note.py",),
    "artifacts/archive/unpack.py": (
        "artifacts/test_archive_readers.py",
        "artifacts/test_artifact_unpack.py",
    ),
    "artifacts/files/budget.py": ("artifacts/test_artifact_bounds.py",),
    "artifacts/description/builds.py": ("artifacts/test_artifact_builds.py",),
    "artifacts/cache/cache.py": ("artifacts/test_artifact_cache.py",),
    "artifacts/cache/cache_contents.py": (
        "artifacts/test_artifact_cache_contents.py",
        "artifacts/test_artifact_cache.py",
    ),
    "artifacts/description/description.py": ("artifacts/test_artifact_description.py", *_DETECT),
    "artifacts/detection/boosters.py": _PREDICTORS,
    "artifacts/detection/keras_files.py": _FOREIGN,
    "artifacts/detection/pickles.py": _PREDICTORS,
    "artifacts/detection/predictors.py": _PREDICTORS,
    "artifacts/detection/runtime_reason.py": ("runtimes/test_runtime_fallback.py", *_DETECT),
    "artifacts/detection/server_code.py": _FOREIGN,
    "artifacts/detection/toolkits.py": ("artifacts/test_artifact_toolkits.py",),
    "artifacts/detection/torch_files.py": (*_FOREIGN, "artifacts/test_artifact_toolkits.py"),
    "artifacts/detection/unserved.py": ("artifacts/test_artifact_exports.py", *_FOREIGN, *_DETECT),
    "artifacts/files/onnx_header.py": (
        "artifacts/test_artifact_onnx_header.py",
        "runtimes/test_runtime_fallback.py",
    ),
    "artifacts/files/user_code.py": ("artifacts/test_artifact_toolkits.py", *_FOREIGN),
    "artifacts/triton/refused_fields.py": ("api/test_refused_members.py", *_TRITON),
    "core/machine/server_start.py": ("core/test_core_server_start.py",),
    "artifacts/detection/detect.py": (
        *_DETECT,
        "artifacts/test_artifact_ensemble.py",
    ),
    "artifacts/detection/detect_pt2.py": (
        "artifacts/test_artifact_pt2_rules.py",
        *_DETECT,
    ),
    "artifacts/sources/fetch.py": ("artifacts/test_artifact_local_files.py", *_PREPARE),
    "artifacts/detection/generation_layout.py": _DETECT,
    "artifacts/sources/http_source.py": ("artifacts/test_artifact_http_source.py", *_PREPARE),
    "artifacts/detection/huggingface.py": (*_DETECT, *_PREPARE),
    "artifacts/detection/images.py": _DETECT,
    "artifacts/files/listing.py": ("artifacts/test_artifact_bounds.py",),
    "artifacts/sources/local_files.py": ("artifacts/test_artifact_local_files.py", *_PREPARE),
    "artifacts/sources/named_places.py": ("artifacts/test_artifact_places.py",),
    "artifacts/sources/places.py": ("artifacts/test_artifact_places.py",),
    "artifacts/files/model_files.py": ("artifacts/test_artifact_onnx_header.py", *_DETECT),
    "artifacts/description/model_yaml.py": _MODEL_YAML,
    "artifacts/sources/object_store.py": ("artifacts/test_artifact_object_store.py", *_PREPARE),
    "artifacts/files/paths.py": ("artifacts/test_artifact_bounds.py",),
    "artifacts/triton/pbtxt.py": (*_TRITON,),
    "artifacts/pull_image.py": ("artifacts/test_artifact_pulled_images.py",),
    "artifacts/prepare.py": (*_PREPARE, "artifacts/test_model_prefix.py"),
    "artifacts/sources/source.py": ("artifacts/test_artifact_bounds.py", *_PREPARE),
    "artifacts/sources/s3_urls.py": ("artifacts/test_s3_urls.py",),
    "artifacts/sources/submitted_code.py": ("artifacts/test_artifact_submitted_code.py",),
    "artifacts/description/sequences.py": ("artifacts/test_artifact_sequences.py",),
    "artifacts/description/triton_facts.py": ("artifacts/test_artifact_triton.py",),
    "artifacts/triton/sequences.py": ("artifacts/test_artifact_sequences.py",),
    "artifacts/triton/config_json.py": (
        "artifacts/test_artifact_triton.py",
        "artifacts/test_artifact_sequences.py",
    ),
    "artifacts/triton/config_tensors.py": (
        "artifacts/test_artifact_triton.py",
        "artifacts/test_artifact_triton_edges.py",
    ),
    "artifacts/triton/config.py": (*_TRITON, "artifacts/test_warm_up_keys.py"),
    "artifacts/triton/ensemble.py": ("artifacts/test_artifact_ensemble.py",),
    "artifacts/triton/triton_models.py": (
        "artifacts/test_artifact_ensemble.py",
        *_TRITON,
    ),
    "file_schema.py": ("artifacts/test_file_schema.py", "sim/test_sim_scenario.py", *_MODEL_YAML),
    "artifacts/description/yaml_tree.py": _MODEL_YAML,
    "metrics/series/sketch.py": ("metrics/test_metrics_sketch.py",),
    "artifacts/model_prefix.py": (
        "artifacts/test_model_prefix.py",
        "artifacts/test_model_names.py",
    ),
    "artifacts/models/index.py": (
        "artifacts/test_model_prefix.py",
        "artifacts/test_model_names.py",
    ),
    "artifacts/sources/server_files.py": ("control/test_artifact_door.py",),
    "core/cost/compared.py": ("core/test_core_cost_compared.py",),
    "core/cost/report.py": ("core/test_core_cost_report.py",),
    "core/jobs/windows.py": ("core/test_jobs_windows.py",),
    "core/residency/keep_warm.py": ("core/test_keep_warm.py",),
    "core/models/most_called.py": ("core/test_most_called.py",),
    "core/routing/target_models.py": (
        "core/test_core_routing_models.py",
        "core/test_core_routing_hosts.py",
    ),
}


def modules_without_code() -> frozenset[str]:
    """`__init__` files: nothing but a docstring, or names for others."""
    return frozenset(
        path.relative_to(SOURCE).as_posix()
        for folder in COVERED
        for path in (SOURCE / folder).rglob("__init__.py")
    )


def covered_modules() -> list[str]:
    """Every module that must have a row, by path."""
    found = []
    for name in COVERED:
        at = SOURCE / name
        files = [at] if at.is_file() else sorted(at.rglob("*.py"))
        found += [file.relative_to(SOURCE).as_posix() for file in files]
    return sorted(set(found) - modules_without_code())
