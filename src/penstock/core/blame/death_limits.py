"""The table of limits: how many deaths it takes until somebody is blamed for them, and why.

    suspect                  what dies with it           enough for blame
    a request                the worker that computes it 2 as the only suspect, 4 in company
    an asynchronous request  the same, seconds apart     3 verdicts of the row above
    a record of a job        the instance with its span  3 as the only suspect
    the span of a job        the same                    5 with the same records at work, 16 at all
    a target model, native   the instance with its host  2 as the only suspect, 4 in company
    a target model           its own process             3 in a row while it is loaded
    a model, a program       the worker that serves it   5 in a row; of a copy, within a minute

*In company*: others that may have done it were there each time. The process of a target model that
is loaded already is given up by the last row, and the model loaded anew: three times in a row are
enough. Starts of instances and copies that fail, for whatever reason, are counted by their slots
(`core/deployment/slot_retries.py`): nothing else is suspected there.
"""

from __future__ import annotations

from typing import Final

#: A suspect that never was the only one needs so many times the deaths: by then chance would hardly
#: have put it there each time, and waiting longer would end more processes.
COMPANY_FACTOR: Final = 2


def deaths_needed(deaths_max: int, *, only_suspect: bool) -> int:
    """How many deaths are enough, where `deaths_max` are for the only suspect."""
    return deaths_max if only_suspect else COMPANY_FACTOR * deaths_max


# Requests

#: A worker that dies once may have died of anything; twice under one request is the request.
REQUEST_DEATHS_MAX: Final = 2
#: Instances lost in a row with one request: a machine that is failing takes no more of them.
REQUEST_LOSSES_MAX: Final = 4
#: Times that an asynchronous request was given up by the two rules above; from the second on one
#: death is enough. Others may have ended the processes, and it has the time to have it made sure.
ASYNC_LOSSES_MAX: Final = 3

# Records of transform jobs

#: Of two deaths the first picks a record by chance, and the second only has to come while that
#: runs: a job with 100 kills sees it. A refusal is for good, so it takes one more.
RECORD_DEATHS_MAX: Final = 3
#: Whole runs of a span that died with the same records at work, though each was found harmless by
#: itself: after each of these deaths the suspects were run apart, so chance is ruled out by then.
SPAN_DEATHS_MAX: Final = 5
#: Deaths over a span for whatever reason, since a record was refused last: three whole searches
#: (`SEARCH_TRIES`) may be in vain, as who kills by chance is given the time to stop.
SPAN_TRIES_MAX: Final = 16
#: The first of these, which need no pause while suspects are run apart: a search takes five.
SEARCH_TRIES: Final = 6
#: Parts that suspects are run in: few deaths to find one record among very many, and batches of a
#: common size are run record by record at once.
SUSPECT_PARTS_MAX: Final = 256

# Target models

#: Of its own process, in a row: one says nothing of the model, as `kill -9` and the kernel when
#: memory runs out look the same, and it costs nobody else anything.
MODEL_DEATHS_MAX: Final = 3
#: Of whole instances, with all that they had loaded: one less is waited for. Signals that come from
#: outside do not count here (`is_crash`).
MODEL_CRASHES_MAX: Final = 2
#: A crash longer ago says nothing of now; also the longest time that a model is left alone for.
CRASHES_REMEMBERED_S: Final = 3600.0
#: How long a model is left alone at first. One that ran so long has a clean record again.
QUARANTINE_S: Final = 300.0

# Workers and programs that are started again

#: With their starts and the waits in between five deaths take some seconds: what passes by itself
#: has passed. Fewer would give up whom somebody else killed.
LOOP_DEATHS_MAX: Final = 5
#: Of a copy. One that dies once an hour without a request in between is started again for ever, for
#: to give it up costs the whole copy. A model of a shared worker has no window: whoever calls it
#: next has it loaded again.
LOOP_WINDOW_S: Final = 60.0
#: Before the first start anew; doubles each time.
RESTART_WAIT_S_MIN: Final = 0.1
RESTART_WAIT_S_MAX: Final = 10.0
