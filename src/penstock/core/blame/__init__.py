"""Who is to blame when a process dies: group testing, for every kind of suspect.

A process dies of one of the things that it worked on (a request, a record, a model) and does not
say which. Or it dies of none of them: somebody killed it, or memory ran out. Group testing, also
known as the isolation of poison requests, finds the cause: suspects are tried in smaller groups
until one of them is the only suspect. A single death proves nothing. Here are the table of limits
(`death_limits.py`) and the rules, each by the evidence that its suspects leave:

    poison_requests    a request carries a count of its deaths, and is tried alone
    crash_loop         one process or model dies again and again
    bisection          a batch fails as a whole, and can be run again in halves
    crashed_instances  notes say what was at work in an instance that is gone

What a suspect is, and what happens to one that is blamed, is up to the caller.
"""
