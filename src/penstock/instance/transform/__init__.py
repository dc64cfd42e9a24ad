"""Offline work in an instance: spans of transform jobs, through a copy that belongs to the job.

    Rows of a model in this process go straight into full batches on its lanes (`rows_span`);
    request bodies of all others through the copy, a few at once (`body_span`). `transforms` starts
    and ends spans.

It knows records and models, and must not know jobs: which span is whose turn, and what becomes of
one that failed, is decided elsewhere (`core/jobs`).
"""
