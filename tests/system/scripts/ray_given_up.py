"""What a call of the cluster raises once Ray's client has given its connection up.

ray_given_up.py: prints the name of the error's class.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import ray.util.client

from penstock.fleet.ray.cluster import CALL_FAILED, Cluster


async def called() -> str:
    cluster = object.__new__(Cluster)  # its connection is the process's, and there is none
    cluster._threads = ThreadPoolExecutor(1)
    try:
        await cluster._in_thread(lambda: ray.util.client.ray.call_remote(None))
    except CALL_FAILED as error:
        return type(error).__name__
    return "answered"


print(asyncio.run(called()))
