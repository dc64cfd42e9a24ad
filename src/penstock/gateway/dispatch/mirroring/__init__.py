"""Copies of answered requests, which no caller waits for: for shadow variants, for the other side
of a rollout, and the questions to who judges its answers."""
