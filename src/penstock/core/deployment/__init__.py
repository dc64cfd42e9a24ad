"""What an endpoint should be, and what is observed of it: specs of variants and components, the
state that deciders read, their actions, and when a failed slot is tried again.
"""
