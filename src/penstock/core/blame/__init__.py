"""Who is to blame when a process dies: group testing, for every kind of suspect.

A process dies of one of the things it had (a request, a record, a model) and does not say of which,
or it dies of none of them: somebody killed it, or memory ran out. This is group testing, also known
as the isolation of poison requests. Suspects are tried in smaller groups until one of them is the
only suspect, and a single death proves nothing. Here are the table of limits (`death_limits.py`)
and the rules, each by the evidence that its suspects leave:

    poison_requests    a request knows the deaths that it was there at, and is tried alone
    crash_loop         of one process or model it is known that it dies, again and again
    bisection          a batch fails whole, and can be run again in halves
    crashed_instances  of an instance that is gone it is noted what was at work

What a suspect is, and what becomes of one that is blamed, is the business of whoever asks.
"""
