"""Triton's Open Inference Protocol, over HTTP and over gRPC."""
