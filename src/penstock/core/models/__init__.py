"""What is known of single models: how much memory one needs, which build fits a processor, which
runtime serves it, proofs of its answers, and what is warmed up in idle time.
"""
