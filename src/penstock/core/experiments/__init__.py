"""Inference experiments: a model is tried as a shadow of another one, for a while."""
