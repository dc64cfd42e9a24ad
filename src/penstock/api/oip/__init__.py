"""The Open Inference Protocol, Triton's: over HTTP and over gRPC."""
