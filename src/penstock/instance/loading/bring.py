"""The time in which an artifact has to be here, whatever it is of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import NotNowError
from penstock.instance.loading.call import LoadCall

T = TypeVar("T")


async def brought(call: LoadCall, work: Callable[[], T], cancelled: threading.Event) -> T:
    """What `work` returns, which runs in a thread and stops once `cancelled` is set: it is when
    this ends, by whatever means. Raises NotNowError (`download-timeout`), and what `work` raises.
    """
    try:
        async with asyncio.timeout(call.download_timeout_s):
            return await asyncio.to_thread(work)
    except TimeoutError:
        raise NotNowError(
            "download-timeout",
            f"{call.source.shown_uri()} was not here within {call.download_timeout_s:g} s",
            hint="Raise ModelDataDownloadTimeoutInSeconds, or bring the artifact nearer.",
        ) from None
    finally:
        cancelled.set()
