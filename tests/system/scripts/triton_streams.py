"""Streams of a decoupled model, by the messages and stubs of an unmodified tritonclient.

triton_streams.py many GRPC NAME STREAMS CONNECTIONS: all at once, each gets its own count.
triton_streams.py slow GRPC NAME COUNT BYTES: one stream whose reader takes as many responses as the
lines of the input say, and then all; "leave" leaves. Prints a line of JSON after each.
triton_streams.py large GRPC NAME IDLE BYTES: messages of so many bytes, there and back, by one call
and by a stream, while other streams are open and idle; then one that is too large.
"""

import asyncio
import json
import queue
import sys

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

how, address, name = sys.argv[1:4]
numbers = list(map(int, sys.argv[4:]))
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.max_receive_message_length", -1),
]


def request(**values):
    made = service_pb2.ModelInferRequest(model_name=name, id=str(values.get("n", "")))
    made.parameters["triton_enable_empty_final_response"].bool_param = True
    for key, value in values.items():
        made.inputs.add(name=key, datatype="INT64", shape=[1])
        made.raw_input_contents.append(np.int64(value).tobytes())
    return made


def final(answer):
    if answer.error_message:
        raise RuntimeError(answer.error_message)
    return answer.infer_response.parameters["triton_final_response"].bool_param


def number_of(answer):
    return int(np.frombuffer(answer.infer_response.raw_output_contents[0], np.int64)[0])


async def one(stub, n, together):
    call = stub.ModelStreamInfer()
    await call.write(request(n=n, size=1, together=together))
    got = []
    while True:
        answer = await call.read()
        if answer.infer_response.raw_output_contents:
            got.append(number_of(answer))
        if final(answer):
            break
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return got == list(range(n))


async def many(streams, connections):
    channels = [grpc.aio.insecure_channel(address, OPTIONS) for _ in range(connections)]
    stubs = [service_pb2_grpc.GRPCInferenceServiceStub(each) for each in channels]
    right = await asyncio.gather(
        *(one(stubs[at % connections], at % 23, streams) for at in range(streams))
    )
    print(json.dumps({"right": sum(right), "responses": sum(at % 23 for at in range(streams))}))
    for channel in channels:
        await channel.close()


async def slow(count, size):
    channel = grpc.aio.insecure_channel(address, OPTIONS)
    call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer()
    await call.write(request(n=count, size=size, together=1))
    read = 0
    ended = False
    while not ended:
        line = await asyncio.to_thread(sys.stdin.readline)
        if line.strip() == "leave":
            call.cancel()
            break
        most = int(line) if line.strip() else count + 1
        while most and not ended:
            answer = await call.read()
            ended = final(answer)
            if answer.infer_response.raw_output_contents:
                assert number_of(answer) == read
                read += 1
            most -= 1
        print(json.dumps({"read": read, "ended": ended}), flush=True)
    await channel.close()


def tensor(size):
    given = triton.InferInput("x", [size], "UINT8")
    given.set_data_from_numpy(np.resize(np.arange(251, dtype=np.uint8), size))
    return [given]


def right(result, size):
    given = np.resize(np.arange(251, dtype=np.uint8), size)
    return bool(np.array_equal(result.as_numpy("y"), given))


async def large(idle, size):
    clients = [triton.InferenceServerClient(address) for _ in range(idle)]
    for client in clients:
        client.start_stream(lambda result, error: None)
    client = triton.InferenceServerClient(address)
    told = {"call": right(client.infer(name, tensor(size)), size)}
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(name, tensor(size))
    result, error = answers.get(timeout=120)
    assert error is None, error
    told["stream"] = right(result, size)
    client.stop_stream()
    try:
        client.infer(name, tensor(size + (8 << 20)))
    except InferenceServerException as error:
        told["too large"] = error.status()
    for each in clients:
        each.stop_stream(cancel_requests=True)
    print(json.dumps(told))


asyncio.run({"many": many, "slow": slow, "large": large}[how](*numbers))
