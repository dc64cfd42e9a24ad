"""Protobuf messages of the Open Inference Protocol (package `inference`).

The field numbers are the protocol's (KServe v2 with Triton's repository, configuration and
statistics extensions, the parts that clients use); `protobuf_schema` has the notation. This module
knows messages and method names; `api/oip` serves them, and the codecs know what the tensors mean.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.wire import model_config_fields
from penstock.wire.protobuf_schema import described_file, message_classes

PACKAGE: Final = "inference"
SERVICE: Final = "inference.GRPCInferenceService"

_MESSAGES: Final = model_config_fields.MESSAGES | {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live:bool=1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready:bool=1",
    "ModelReadyRequest": "name:string=1 version:string=2",
    "ModelReadyResponse": "ready:bool=1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name:string=1 version:string=2 extensions:*string=3",
    "ModelMetadataRequest": "name:string=1 version:string=2",
    "ModelMetadataResponse": (
        "name:string=1 versions:*string=2 platform:string=3 "
        "inputs:*ModelMetadataResponse.TensorMetadata=4 "
        "outputs:*ModelMetadataResponse.TensorMetadata=5"
    ),
    "ModelMetadataResponse.TensorMetadata": "name:string=1 datatype:string=2 shape:*int64=3",
    "InferParameter": (
        "bool_param:bool=1|parameter_choice int64_param:int64=2|parameter_choice "
        "string_param:string=3|parameter_choice double_param:double=4|parameter_choice "
        "uint64_param:uint64=5|parameter_choice"
    ),
    "InferTensorContents": (
        "bool_contents:*bool=1 int_contents:*int32=2 int64_contents:*int64=3 "
        "uint_contents:*uint32=4 uint64_contents:*uint64=5 fp32_contents:*float=6 "
        "fp64_contents:*double=7 bytes_contents:*bytes=8"
    ),
    "ModelInferRequest": (
        "model_name:string=1 model_version:string=2 id:string=3 parameters:{InferParameter}=4 "
        "inputs:*ModelInferRequest.InferInputTensor=5 "
        "outputs:*ModelInferRequest.InferRequestedOutputTensor=6 raw_input_contents:*bytes=7"
    ),
    "ModelInferRequest.InferInputTensor": (
        "name:string=1 datatype:string=2 shape:*int64=3 parameters:{InferParameter}=4 "
        "contents:InferTensorContents=5"
    ),
    "ModelInferRequest.InferRequestedOutputTensor": "name:string=1 parameters:{InferParameter}=2",
    # A request without its tensors: what it holds besides is skipped, not parsed
    "ModelInferHead": "parameters:{InferParameter}=4",
    "ModelInferResponse": (
        "model_name:string=1 model_version:string=2 id:string=3 parameters:{InferParameter}=4 "
        "outputs:*ModelInferResponse.InferOutputTensor=5 raw_output_contents:*bytes=6"
    ),
    "ModelInferResponse.InferOutputTensor": (
        "name:string=1 datatype:string=2 shape:*int64=3 parameters:{InferParameter}=4 "
        "contents:InferTensorContents=5"
    ),
    "ModelStreamInferResponse": "error_message:string=1 infer_response:ModelInferResponse=2",
    "ModelConfigRequest": "name:string=1 version:string=2",
    "ModelConfigResponse": "config:ModelConfig=1",
    "ModelStatisticsRequest": "name:string=1 version:string=2",
    "StatisticDuration": "count:uint64=1 ns:uint64=2",
    "InferStatistics": (
        "success:StatisticDuration=1 fail:StatisticDuration=2 queue:StatisticDuration=3 "
        "compute_input:StatisticDuration=4 compute_infer:StatisticDuration=5 "
        "compute_output:StatisticDuration=6 cache_hit:StatisticDuration=7 "
        "cache_miss:StatisticDuration=8"
    ),
    "InferBatchStatistics": (
        "batch_size:uint64=1 compute_input:StatisticDuration=2 compute_infer:StatisticDuration=3 "
        "compute_output:StatisticDuration=4"
    ),
    "InferResponseStatistics": (
        "compute_infer:StatisticDuration=1 compute_output:StatisticDuration=2 "
        "success:StatisticDuration=3 fail:StatisticDuration=4 "
        "empty_response:StatisticDuration=5 cancel:StatisticDuration=6"
    ),
    "MemoryUsage": "type:string=1 id:int64=2 byte_size:uint64=3",
    "ModelStatistics": (
        "name:string=1 version:string=2 last_inference:uint64=3 inference_count:uint64=4 "
        "execution_count:uint64=5 inference_stats:InferStatistics=6 "
        "batch_stats:*InferBatchStatistics=7 memory_usage:*MemoryUsage=8 "
        "response_stats:{InferResponseStatistics}=9"
    ),
    "ModelStatisticsResponse": "model_stats:*ModelStatistics=1",
    "ModelRepositoryParameter": (
        "bool_param:bool=1|parameter_choice int64_param:int64=2|parameter_choice "
        "string_param:string=3|parameter_choice bytes_param:bytes=4|parameter_choice"
    ),
    "RepositoryIndexRequest": "repository_name:string=1 ready:bool=2",
    "RepositoryIndexResponse": "models:*RepositoryIndexResponse.ModelIndex=1",
    "RepositoryIndexResponse.ModelIndex": (
        "name:string=1 version:string=2 state:string=3 reason:string=4"
    ),
    "RepositoryModelLoadRequest": (
        "repository_name:string=1 model_name:string=2 parameters:{ModelRepositoryParameter}=3"
    ),
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": (
        "repository_name:string=1 model_name:string=2 parameters:{ModelRepositoryParameter}=3"
    ),
    "RepositoryModelUnloadResponse": "",
    "SystemSharedMemoryStatusRequest": "name:string=1",
    "SystemSharedMemoryStatusResponse": (
        "regions:{SystemSharedMemoryStatusResponse.RegionStatus}=1"
    ),
    "SystemSharedMemoryStatusResponse.RegionStatus": (
        "name:string=1 key:string=2 offset:uint64=3 byte_size:uint64=4"
    ),
    "SystemSharedMemoryRegisterRequest": (
        "name:string=1 key:string=2 offset:uint64=3 byte_size:uint64=4"
    ),
    "SystemSharedMemoryRegisterResponse": "",
    "SystemSharedMemoryUnregisterRequest": "name:string=1",
    "SystemSharedMemoryUnregisterResponse": "",
    "CudaSharedMemoryStatusRequest": "name:string=1",
    "CudaSharedMemoryStatusResponse": "regions:{CudaSharedMemoryStatusResponse.RegionStatus}=1",
    "CudaSharedMemoryStatusResponse.RegionStatus": (
        "name:string=1 device_id:uint64=2 byte_size:uint64=3"
    ),
    "CudaSharedMemoryRegisterRequest": (
        "name:string=1 raw_handle:bytes=2 device_id:int64=3 byte_size:uint64=4"
    ),
    "CudaSharedMemoryRegisterResponse": "",
    "CudaSharedMemoryUnregisterRequest": "name:string=1",
    "CudaSharedMemoryUnregisterResponse": "",
    **{
        f"TraceSetting{way}": f"settings:{{TraceSetting{way}.SettingValue}}=1{more}"
        for way, more in (("Request", " model_name:string=2"), ("Response", ""))
    },
    **{f"TraceSetting{way}.SettingValue": "value:*string=1" for way in ("Request", "Response")},
    **{
        f"LogSettings{way}": f"settings:{{LogSettings{way}.SettingValue}}=1"
        for way in ("Request", "Response")
    },
    **{
        f"LogSettings{way}.SettingValue": (
            "bool_param:bool=1|parameter_choice uint32_param:uint32=2|parameter_choice "
            "string_param:string=3|parameter_choice"
        )
        for way in ("Request", "Response")
    },
}

#: Extensions whose methods all have the messages that their names say.
_EXTENSIONS: Final = (
    *(f"SystemSharedMemory{verb}" for verb in ("Status", "Register", "Unregister")),
    *(f"CudaSharedMemory{verb}" for verb in ("Status", "Register", "Unregister")),
    "TraceSetting",
    "LogSettings",
)

#: method -> (request, response, client streams, server streams)
METHODS: Final = {
    "ServerLive": ("ServerLiveRequest", "ServerLiveResponse", False, False),
    "ServerReady": ("ServerReadyRequest", "ServerReadyResponse", False, False),
    "ModelReady": ("ModelReadyRequest", "ModelReadyResponse", False, False),
    "ServerMetadata": ("ServerMetadataRequest", "ServerMetadataResponse", False, False),
    "ModelMetadata": ("ModelMetadataRequest", "ModelMetadataResponse", False, False),
    "ModelInfer": ("ModelInferRequest", "ModelInferResponse", False, False),
    "ModelStreamInfer": ("ModelInferRequest", "ModelStreamInferResponse", True, True),
    "ModelConfig": ("ModelConfigRequest", "ModelConfigResponse", False, False),
    "ModelStatistics": ("ModelStatisticsRequest", "ModelStatisticsResponse", False, False),
    "RepositoryIndex": ("RepositoryIndexRequest", "RepositoryIndexResponse", False, False),
    "RepositoryModelLoad": (
        "RepositoryModelLoadRequest",
        "RepositoryModelLoadResponse",
        False,
        False,
    ),
    "RepositoryModelUnload": (
        "RepositoryModelUnloadRequest",
        "RepositoryModelUnloadResponse",
        False,
        False,
    ),
    **{name: (f"{name}Request", f"{name}Response", False, False) for name in _EXTENSIONS},
}

#: The description of all this, as reflection shows it.
FILE: Final = described_file(
    "penstock/oip.proto",
    PACKAGE,
    _MESSAGES,
    enums=model_config_fields.ENUMS,
    services={SERVICE.removeprefix(f"{PACKAGE}."): METHODS},
)
MESSAGES: Final[dict[str, Any]] = message_classes(FILE)

ModelInferRequest: Final = MESSAGES["ModelInferRequest"]
ModelInferHead: Final = MESSAGES["ModelInferHead"]
ModelInferResponse: Final = MESSAGES["ModelInferResponse"]
ModelStreamInferResponse: Final = MESSAGES["ModelStreamInferResponse"]
InferParameter: Final = MESSAGES["InferParameter"]


def method_classes(method: str) -> tuple[Any, Any]:
    """Request and response class of a method of the service."""
    request, response, _, _ = METHODS[method]
    return MESSAGES[request], MESSAGES[response]
