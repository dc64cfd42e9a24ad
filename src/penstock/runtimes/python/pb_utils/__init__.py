"""What Triton's Python models import as `triton_python_backend_utils`, by subject.

Names and behaviour follow Triton's Python backend. The model's process runs this in an environment
of the model: standard library, numpy, and modules of ours that import no more. It must not know
which queue or front door a request came through.
"""
