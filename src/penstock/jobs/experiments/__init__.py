"""Inference experiments: kept on record, carried out on their endpoints."""
