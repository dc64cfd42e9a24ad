"""The record of what was asked for, in transactions: rows, pages, and the thread that they run
on.
"""
