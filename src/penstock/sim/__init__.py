"""The twin: the live platform's admission, routing and batching under virtual time.

The classes that decide are constructed, not modelled: `EndpointRouter`, `Admission`, `Batcher`.
What stands in for the rest of the world is a workload, service times and faults, all from one seed.
"""
