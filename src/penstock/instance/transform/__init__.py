"""Offline work in an instance: spans of transform jobs, through a copy that belongs to the job.

Rows of a model in this process go directly into full batches on its lanes (`rows_span`). Other
models get request bodies through the copy, a few at once (`body_span`). `transforms` starts and
ends spans.

This folder knows records and models, and must not know jobs: `core/jobs` decides which span is
next, and what happens when one fails.
"""
