"""Fields of Triton's ModelConfig (package `inference`), of which `oip_messages` makes classes.

The numbers are those of Triton's model_config.proto, and the notation that of `oip_messages`. All
fields are here, so a configuration can be shown whole, whether or not Penstock serves it.
"""

from __future__ import annotations

from typing import Final

#: name of an enumeration -> its values, from 0 on
ENUMS: Final = {
    "BatchInput.Kind": (
        "BATCH_ELEMENT_COUNT BATCH_ACCUMULATED_ELEMENT_COUNT "
        "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO BATCH_MAX_ELEMENT_COUNT_AS_SHAPE "
        "BATCH_ITEM_SHAPE BATCH_ITEM_SHAPE_FLATTEN"
    ),
    "BatchOutput.Kind": "BATCH_SCATTER_WITH_INPUT_SHAPE",
    "DataType": (
        "TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8 "
        "TYPE_INT16 TYPE_INT32 TYPE_INT64 TYPE_FP16 TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16"
    ),
    "ModelInput.Format": "FORMAT_NONE FORMAT_NHWC FORMAT_NCHW",
    "ModelInstanceGroup.Kind": "KIND_AUTO KIND_GPU KIND_CPU KIND_MODEL",
    "ModelInstanceGroup.SecondaryDevice.SecondaryDeviceKind": "KIND_NVDLA",
    "ModelOptimizationPolicy.ModelPriority": "PRIORITY_DEFAULT PRIORITY_MAX PRIORITY_MIN",
    "ModelQueuePolicy.TimeoutAction": "REJECT DELAY",
    "ModelSequenceBatching.Control.Kind": (
        "CONTROL_SEQUENCE_START CONTROL_SEQUENCE_READY CONTROL_SEQUENCE_END CONTROL_SEQUENCE_CORRID"
    ),
}

#: name of a message -> its fields
MESSAGES: Final = {
    "BatchInput": (
        "kind:BatchInput.Kind=1 target_name:*string=2 data_type:DataType=3 source_input:*string=4"
    ),
    "BatchOutput": "target_name:*string=1 kind:BatchOutput.Kind=2 source_input:*string=3",
    "ModelConfig": (
        "name:string=1 platform:string=2 backend:string=17 runtime:string=25 "
        "version_policy:ModelVersionPolicy=3 max_batch_size:int32=4 input:*ModelInput=5 "
        "output:*ModelOutput=6 batch_input:*BatchInput=20 batch_output:*BatchOutput=21 "
        "optimization:ModelOptimizationPolicy=12 "
        "dynamic_batching:ModelDynamicBatching=11|scheduling_choice "
        "sequence_batching:ModelSequenceBatching=13|scheduling_choice "
        "ensemble_scheduling:ModelEnsembling=15|scheduling_choice "
        "instance_group:*ModelInstanceGroup=7 default_model_filename:string=8 "
        "cc_model_filenames:{string}=9 metric_tags:{string}=10 parameters:{ModelParameter}=14 "
        "model_warmup:*ModelWarmup=16 model_operations:ModelOperations=18 "
        "model_transaction_policy:ModelTransactionPolicy=19 "
        "model_repository_agents:ModelRepositoryAgents=23 "
        "response_cache:ModelResponseCache=24 model_metrics:ModelMetrics=26"
    ),
    "ModelDynamicBatching": (
        "preferred_batch_size:*int32=1 max_queue_delay_microseconds:uint64=2 "
        "preserve_ordering:bool=3 priority_levels:uint64=4 default_priority_level:uint64=5 "
        "default_queue_policy:ModelQueuePolicy=6 "
        "priority_queue_policy:{uint64,ModelQueuePolicy}=7"
    ),
    "ModelEnsembling": "step:*ModelEnsembling.Step=1 max_inflight_requests:uint32=2",
    "ModelEnsembling.Step": (
        "model_name:string=1 model_version:int64=2 input_map:{string}=3 output_map:{string}=4 "
        "model_namespace:string=5"
    ),
    "ModelInput": (
        "name:string=1 data_type:DataType=2 format:ModelInput.Format=3 dims:*int64=4 "
        "reshape:ModelTensorReshape=5 is_shape_tensor:bool=6 allow_ragged_batch:bool=7 "
        "optional:bool=8 is_non_linear_format_io:bool=9"
    ),
    "ModelInstanceGroup": (
        "name:string=1 kind:ModelInstanceGroup.Kind=4 count:int32=2 "
        "rate_limiter:ModelRateLimiter=6 gpus:*int32=3 "
        "secondary_devices:*ModelInstanceGroup.SecondaryDevice=8 profile:*string=5 "
        "passive:bool=7 host_policy:string=9"
    ),
    "ModelInstanceGroup.SecondaryDevice": (
        "kind:ModelInstanceGroup.SecondaryDevice.SecondaryDeviceKind=1 device_id:int64=2"
    ),
    "ModelMetrics": "metric_control:*ModelMetrics.MetricControl=1",
    "ModelMetrics.MetricControl": (
        "metric_identifier:ModelMetrics.MetricControl.MetricIdentifier=1 "
        "histogram_options:ModelMetrics.MetricControl.HistogramOptions=2|metric_options"
    ),
    "ModelMetrics.MetricControl.HistogramOptions": "buckets:*double=1",
    "ModelMetrics.MetricControl.MetricIdentifier": "family:string=1",
    "ModelOperations": "op_library_filename:*string=1",
    "ModelOptimizationPolicy": (
        "graph:ModelOptimizationPolicy.Graph=1 "
        "priority:ModelOptimizationPolicy.ModelPriority=2 cuda:ModelOptimizationPolicy.Cuda=3 "
        "execution_accelerators:ModelOptimizationPolicy.ExecutionAccelerators=4 "
        "input_pinned_memory:ModelOptimizationPolicy.PinnedMemoryBuffer=5 "
        "output_pinned_memory:ModelOptimizationPolicy.PinnedMemoryBuffer=6 "
        "gather_kernel_buffer_threshold:uint32=7 eager_batching:bool=8"
    ),
    "ModelOptimizationPolicy.Cuda": (
        "graphs:bool=1 busy_wait_events:bool=2 "
        "graph_spec:*ModelOptimizationPolicy.Cuda.GraphSpec=3 output_copy_stream:bool=4"
    ),
    "ModelOptimizationPolicy.Cuda.GraphSpec": (
        "batch_size:int32=1 input:{ModelOptimizationPolicy.Cuda.GraphSpec.Shape}=2 "
        "graph_lower_bound:ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound=3"
    ),
    "ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound": (
        "batch_size:int32=1 input:{ModelOptimizationPolicy.Cuda.GraphSpec.Shape}=2"
    ),
    "ModelOptimizationPolicy.Cuda.GraphSpec.Shape": "dim:*int64=1",
    "ModelOptimizationPolicy.ExecutionAccelerators": (
        "gpu_execution_accelerator:*ModelOptimizationPolicy.ExecutionAccelerators.Accelerator=1 "
        "cpu_execution_accelerator:*ModelOptimizationPolicy.ExecutionAccelerators.Accelerator=2"
    ),
    "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator": (
        "name:string=1 parameters:{string}=2"
    ),
    "ModelOptimizationPolicy.Graph": "level:int32=1",
    "ModelOptimizationPolicy.PinnedMemoryBuffer": "enable:bool=1",
    "ModelOutput": (
        "name:string=1 data_type:DataType=2 dims:*int64=3 reshape:ModelTensorReshape=5 "
        "label_filename:string=4 is_shape_tensor:bool=6 is_non_linear_format_io:bool=7"
    ),
    "ModelParameter": "string_value:string=1",
    "ModelQueuePolicy": (
        "timeout_action:ModelQueuePolicy.TimeoutAction=1 "
        "default_timeout_microseconds:uint64=2 allow_timeout_override:bool=3 "
        "max_queue_size:uint32=4"
    ),
    "ModelRateLimiter": "resources:*ModelRateLimiter.Resource=1 priority:uint32=2",
    "ModelRateLimiter.Resource": "name:string=1 global:bool=2 count:uint32=3",
    "ModelRepositoryAgents": "agents:*ModelRepositoryAgents.Agent=1",
    "ModelRepositoryAgents.Agent": "name:string=1 parameters:{string}=2",
    "ModelResponseCache": "enable:bool=1",
    "ModelSequenceBatching": (
        "direct:ModelSequenceBatching.StrategyDirect=3|strategy_choice "
        "oldest:ModelSequenceBatching.StrategyOldest=4|strategy_choice "
        "max_sequence_idle_microseconds:uint64=1 "
        "control_input:*ModelSequenceBatching.ControlInput=2 "
        "state:*ModelSequenceBatching.State=5 iterative_sequence:bool=6"
    ),
    "ModelSequenceBatching.Control": (
        "kind:ModelSequenceBatching.Control.Kind=1 int32_false_true:*int32=2 "
        "fp32_false_true:*float=3 bool_false_true:*bool=5 data_type:DataType=4"
    ),
    "ModelSequenceBatching.ControlInput": (
        "name:string=1 control:*ModelSequenceBatching.Control=2"
    ),
    "ModelSequenceBatching.InitialState": (
        "data_type:DataType=1 dims:*int64=2 zero_data:bool=3|state_data "
        "data_file:string=4|state_data name:string=5"
    ),
    "ModelSequenceBatching.State": (
        "input_name:string=1 output_name:string=2 data_type:DataType=3 dims:*int64=4 "
        "initial_state:*ModelSequenceBatching.InitialState=5 "
        "use_same_buffer_for_input_output:bool=6 use_growable_memory:bool=7"
    ),
    "ModelSequenceBatching.StrategyDirect": (
        "max_queue_delay_microseconds:uint64=1 minimum_slot_utilization:float=2"
    ),
    "ModelSequenceBatching.StrategyOldest": (
        "max_candidate_sequences:int32=1 preferred_batch_size:*int32=2 "
        "max_queue_delay_microseconds:uint64=3 preserve_ordering:bool=4"
    ),
    "ModelTensorReshape": "shape:*int64=1",
    "ModelTransactionPolicy": "decoupled:bool=1",
    "ModelVersionPolicy": (
        "latest:ModelVersionPolicy.Latest=1|policy_choice "
        "all:ModelVersionPolicy.All=2|policy_choice "
        "specific:ModelVersionPolicy.Specific=3|policy_choice"
    ),
    "ModelVersionPolicy.All": "",
    "ModelVersionPolicy.Latest": "num_versions:uint32=1",
    "ModelVersionPolicy.Specific": "versions:*int64=1",
    "ModelWarmup": (
        "name:string=1 batch_size:uint32=2 inputs:{ModelWarmup.Input}=3 count:uint32=4"
    ),
    "ModelWarmup.Input": (
        "data_type:DataType=1 dims:*int64=2 zero_data:bool=3|input_data_type "
        "random_data:bool=4|input_data_type input_data_file:string=5|input_data_type"
    ),
}
