"""Load as perf_analyzer makes it: at each concurrency a number of requests, over gRPC and HTTP.

triton_load.py HTTP GRPC NAME COUNT CONCURRENCIES: so many callers at once, each of which sends its
next request when it has its answer, until COUNT were sent. Each answer is compared with what its
input gives. Prints a line of JSON for each protocol and concurrency.
"""

import asyncio
import json
import sys
from collections import Counter

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

http_address, grpc_address, name, count, concurrencies = sys.argv[1:]
COUNT = int(count)


async def caller(module, client, numbers, outcomes):
    for number in numbers:
        rows = 1 + number % 3
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) + number
        given = module.InferInput("x", x.shape, "FP32")
        given.set_data_from_numpy(x)
        try:
            answer = await client.infer(name, [given], request_id=str(number))
        except InferenceServerException as error:
            outcomes[str(error)[:200]] += 1
            continue
        same = np.array_equal(answer.as_numpy("y"), x * 2)
        said = answer.get_response()
        ident = said["id"] if isinstance(said, dict) else said.id
        outcomes["right" if same and ident == str(number) else "wrong"] += 1


async def load(protocol, module, client, concurrency):
    numbers = iter(range(COUNT))
    outcomes = Counter()
    callers = (caller(module, client, numbers, outcomes) for _ in range(concurrency))
    await asyncio.gather(*callers)
    told = {"protocol": protocol, "concurrency": concurrency, "outcomes": outcomes}
    print(json.dumps(told), flush=True)


async def main():
    async with (
        grpc_aio.InferenceServerClient(grpc_address) as over_grpc,
        http_aio.InferenceServerClient(http_address, conn_limit=64) as over_http,
    ):
        for concurrency in map(int, concurrencies.split(",")):
            await load("grpc", triton_grpc, over_grpc, concurrency)
            await load("http", triton_http, over_http, concurrency)


asyncio.run(main())
