"""Default functions of SageMaker's toolkits, for user code that does not define its own.

One file per framework, each with default_model_fn, default_input_fn, default_predict_fn and
default_output_fn where the toolkit has one. They run in the model's process and environment: they
import the standard library, numpy and `errors`, and their framework only inside functions. They
must not know the runtime that calls them.
"""
