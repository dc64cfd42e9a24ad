"""The way of each request to a copy and back: routed, held, sent, retried, ended exactly once. It
drives `core/routing` and the rules of `core/request`.
"""
