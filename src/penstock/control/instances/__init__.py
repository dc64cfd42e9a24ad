"""Operations on instances and copies (start, load, drain, stop), what instances report, and the
ledger that records all of it.
"""
