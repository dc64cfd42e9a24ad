"""What an endpoint should be, and the words in which it is told: specs of variants and
components, what is wished of them, what has been seen, and when a failed slot is tried again.
"""
