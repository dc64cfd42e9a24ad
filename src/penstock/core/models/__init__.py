"""What is known of single models: the memory that one needs, the build that fits a processor,
proofs of its answers, and what is warmed up while nobody waits.
"""
