"""Sends notifications of asynchronous requests to the URLs that the operator gave for their topics.

The form is that of Amazon SNS for HTTP and HTTPS: a subscriber of a topic finds the members and
headers that it knows, except the signature, which only Amazon can make. Callers name topics, never
URLs: the URLs are in this server's configuration and nowhere else. Redirects are not followed, and
only the status of the reply is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import urllib3

from penstock.artifacts.sources.object_store import without_secrets
from penstock.clock import Clock
from penstock.control.loop import DriverLoop
from penstock.control.store.store_thread import StoreThread
from penstock.core.jobs import asynchronous_actions
from penstock.jobs.asynchronous import rows
from penstock.jobs.asynchronous.rows import Due, Notification
from penstock.metrics import item_failures
from penstock.metrics.catalogue.work_catalogue import NOTIFICATIONS
from penstock.metrics.counts.work_counts import WorkCounts

_log = logging.getLogger(__name__)

ANY_TOPIC: Final = "*"
_TIMEOUT: Final = urllib3.Timeout(connect=5.0, read=15.0)
_TOGETHER_MAX: Final = 8  #: posts at once
_LOOK_AGAIN_S: Final = 30.0
_DELIVERED: Final = range(200, 300)


class Notifier:
    """All notifications of one server. `start`, then `close`."""

    def __init__(
        self,
        database: StoreThread,
        topics: Mapping[str, str],
        clock: Clock,
        counts: WorkCounts,
        *,
        post: Callable[[str, Notification], int] | None = None,
    ) -> None:
        """`topics`: topic ARN -> URL; the key "*" stands for all other topics."""
        self._database = database
        self._topics = topics
        self._clock = clock
        self._counts = counts
        self._post = post or _Poster().post
        loop = DriverLoop("notifications", self._turn, fault="notifications", retry_s=_LOOK_AGAIN_S)
        #: `start` resumes what was not delivered; what is not by `close` stays in the record
        self.start, self.close = loop.start, loop.close
        self.wake = loop.wake  #: call this when there is a new notification to send

    def knows(self, topic: str) -> bool:
        """Whether there is a URL for a topic."""
        return topic in self._topics or ANY_TOPIC in self._topics

    async def _turn(self) -> float:
        now = self._clock.wall()
        due, next_at = await self._database.call(rows.due, now, _TOGETHER_MAX)
        if due:
            results = await asyncio.gather(*map(self._deliver, due), return_exceptions=True)
            for failed in results:
                if isinstance(failed, BaseException):  # an error of the record: all have to wait
                    raise failed
            return 0.0
        return _LOOK_AGAIN_S if next_at is None else min(max(next_at - now, 0.05), _LOOK_AGAIN_S)

    async def _deliver(self, due: Due) -> None:
        told = due.notification
        url = self._topics.get(told.topic) or self._topics.get(ANY_TOPIC)
        failure = "no URL is configured for it any more"
        if url is not None:
            try:
                status = await asyncio.to_thread(self._post, url, told)
                failure = "" if status in _DELIVERED else f"the answer was {status}"
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                failure = without_secrets(str(error) or type(error).__name__)
            # Postponed like any other, so that those behind it get their turn
            except Exception as error:
                item_failures.note("notifications", told.message_id, error)
                failure = "an internal error occurred"
        now = self._clock.wall()
        if not failure:
            self._counts.count(NOTIFICATIONS, "delivered")
            await self._database.call(rows.sent, due.number)
            return
        again = asynchronous_actions.decide(made=told.made, tries=due.tries + 1, now=now)
        _log.warning("notification %s to %s: %s", told.message_id, told.topic, failure)
        self._counts.count(NOTIFICATIONS, "given-up" if again.at is None else "failed")
        if again.at is None:
            _log.error("notification %s to %s is given up", told.message_id, told.topic)
            await self._database.call(rows.sent, due.number)
        else:
            await self._database.call(rows.put_off, due.number, again.at, due.tries + 1)


class _Poster:
    """Posts messages, in threads."""

    def __init__(self) -> None:
        self._pools = urllib3.PoolManager(num_pools=8, maxsize=_TOGETHER_MAX, timeout=_TIMEOUT)

    def post(self, url: str, told: Notification) -> int:
        """The status of the reply. Raises urllib3's HTTPError, OSError."""
        answer: Any = self._pools.request(
            "POST",
            url,
            body=orjson.dumps(envelope(told)),
            headers={
                "content-type": "text/plain; charset=UTF-8",  # as SNS has it
                "user-agent": "penstock",
                "x-amz-sns-message-type": "Notification",
                "x-amz-sns-message-id": told.message_id,
                "x-amz-sns-topic-arn": told.topic,
            },
            redirect=False,
            retries=False,
            preload_content=False,
        )
        status = int(answer.status)
        answer.close()
        return status


def envelope(told: Notification) -> dict[str, str]:
    """The message as SNS posts it."""
    at = datetime.fromtimestamp(told.made, UTC).isoformat(timespec="milliseconds")
    return {
        "Type": "Notification",
        "MessageId": told.message_id,
        "TopicArn": told.topic,
        "Message": told.message,
        "Timestamp": at.replace("+00:00", "Z"),
    }
