"""The twin: the live platform's admission, routing and batching under virtual time.

The deciding classes are the live ones, not models of them: `EndpointRouter`, `Admission`,
`Batcher`. A workload, service times and faults, all drawn from one seed, replace the rest of the
world.
"""
