"""OpenVINO: ONNX files and its own IR, in lane threads of the instance.

It knows nothing of texts, bodies and processes.
"""
