"""Operations on instances and copies: started, loaded, drained, ended; what instances say of
themselves, and the ledger of all that is seen.
"""
