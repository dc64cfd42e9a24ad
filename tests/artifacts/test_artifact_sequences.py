"""`sequence_batching` of config.pbtxt: what is read and refused, and what `/config` tells of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import json_format
from tests.kit import sequence_models as models
from tests.kit import triton_files

from penstock.artifacts.description.sequences import (
    ControlInput,
    SequenceBatching,
    StateTensor,
)
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.triton.config import parse_config
from penstock.errors import CallerError
from penstock.wire.oip_messages import MESSAGES

WHOLE = """
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 8 preferred_batch_size: [ 4, 2 ]
           max_queue_delay_microseconds: 100 preserve_ordering: true }
  control_input [
    { name: "start" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1.5 ] } ] },
    { name: "ready" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } },
    { name: "end" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ -1, 1 ] } },
    { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
  ]
  state [ { input_name: "in" output_name: "out" data_type: TYPE_FP32 dims: [ -1, 2 ]
            use_same_buffer_for_input_output: true
            initial_state { name: "first" data_type: TYPE_FP32 dims: [ 3, 2 ] data_file: "f" } } ]
}
"""
READ = SequenceBatching(
    idle_s_max=5.0,
    direct=False,
    slots=8,
    rows_preferred=(2, 4),
    wait_s_max=0.0001,
    controls=(
        ControlInput(name="start", kind="START", dtype="FP32", false_true=(0.0, 1.5)),
        ControlInput(name="ready", kind="READY", dtype="BOOL", false_true=(0, 1)),
        ControlInput(name="end", kind="END", dtype="INT32", false_true=(-1, 1)),
        ControlInput(name="id", kind="CORRID", dtype="BYTES"),
    ),
    states=(
        StateTensor(
            input="in", output="out", dtype="FP32", shape=(-1, 2), initial_shape=(3, 2),
            initial_file="initial_state/f",
        ),
    ),
)  # fmt: skip


def test_all_of_it_is_read_and_told_in_triton_s_words() -> None:
    config = parse_config(WHOLE)
    assert config.sequences == READ
    message = json_format.ParseDict(config.whole, MESSAGES["ModelConfig"]())
    told = message.sequence_batching
    assert told.oldest.max_candidate_sequences == 8
    assert [one.name for one in told.control_input] == ["start", "ready", "end", "id"]
    assert told.state[0].initial_state[0].data_file == "f"


def test_without_a_strategy_it_is_direct_and_idle_after_a_second() -> None:
    found = parse_config("max_batch_size: 4 sequence_batching { }").sequences
    assert found == SequenceBatching(idle_s_max=1.0, direct=True, slots=4)
    alone = parse_config("sequence_batching { direct { max_queue_delay_microseconds: 9 } }")
    assert alone.sequences == SequenceBatching(slots=1)  # the delay counts with a utilization only
    assert parse_config("max_batch_size: 4").sequences is None


def test_a_state_without_a_first_value_begins_with_zeros_of_one_element_where_it_is_free() -> None:
    text = 'state { input_name: "i" output_name: "o" data_type: TYPE_INT64 dims: [ -1, 3 ] }'
    found = parse_config(f"sequence_batching {{ {text} }}").sequences
    assert found is not None
    assert found.states[0].initial_shape == (1, 3)


START = 'name: "s" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }'


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("direct { } oldest { }", "sequence_batching.oldest"),
        ("direct { minimum_slot_utilization: 1.5 }", "direct.minimum_slot_utilization"),
        (f"control_input {{ {START} }} control_input {{ {START} }}", "control_input"),
        ('control_input { name: "s" }', "control_input[0].control"),
        ('control_input { name: "s" control { kind: CONTROL_SEQUENCE_READY } }', "kind"),
        ('control_input { name: "s" control { int32_false_true: [ 0 ] } }', "int32_false_true"),
        ('control_input { name: "s" control { int32_false_true: [ 0, 0.5 ] } }',
         "int32_false_true"),
        ('control_input { name: "s" control { kind: CONTROL_SEQUENCE_CORRID } }', "data_type"),
        ('control_input { name: "s" control { kind: CONTROL_SEQUENCE_CORRID '
         "data_type: TYPE_FP32 } }", "data_type"),
        ('state { input_name: "i" data_type: TYPE_FP32 dims: 1 }', "state[0].input_name"),
        ('state { input_name: "i" output_name: "o" data_type: TYPE_FP32 dims: 1 '
         'initial_state { name: "f" data_type: TYPE_FP32 dims: 2 zero_data: true } }', "dims"),
        ('state { input_name: "i" output_name: "o" data_type: TYPE_FP32 dims: 1 '
         'initial_state { name: "f" data_type: TYPE_FP32 dims: 1 } }', "zero_data"),
        ("max_idle: 1", "sequence_batching.max_idle"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(text: str, path: str) -> None:
    with pytest.raises(CallerError) as refused:
        parse_config(f"sequence_batching {{ {text} }}")
    assert refused.value.code == "triton-config-invalid"
    assert path in refused.value.message


def test_what_it_can_t_be_together_with_is_refused(tmp_path: Path) -> None:
    state = (
        'state { input_name: "i" output_name: "o" data_type: TYPE_FP32 dims: 1 }'
        'control_input { name: "x" control { int32_false_true: [ 0, 1 ] } }'
    )
    for more, words in (
        ("sequence_batching { } dynamic_batching { }", "sequence_batching is "),
        (f"sequence_batching {{ {state} }}", "'x' is also one of sequence_batching"),
        (f"sequence_batching {{ {state.replace('x', 'y')} }}", "keeps its state in its own memory"),
    ):
        x = [("x", "FP32", [1])]
        folder = triton_files.python(tmp_path / "m", "", inputs=x, outputs=x, more=more)
        with pytest.raises(CallerError, match=words):
            detect(folder)


def test_a_stateful_model_is_called_by_no_other_model(tmp_path: Path) -> None:
    models.adding(tmp_path / "adds")
    x = [("x", "INT64", [1])]
    caller = 'class TritonPythonModel: """Makes an InferenceRequest."""'
    triton_files.python(tmp_path / "caller", caller, inputs=x, outputs=x)
    with pytest.raises(CallerError, match="for a model that 'caller' calls"):
        detect(tmp_path, environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "caller"})
