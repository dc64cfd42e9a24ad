"""Interleaved sequences through an unmodified tritonclient, while others kill what answers them.

triton_sequences.py HTTP GRPC NAME SEQUENCES THREADS SEED. Each thread has some sequences open at
once, by one door each: HTTP, gRPC or a gRPC stream; their ids are numbers and texts. Every answer
is compared with the sum of what the sequence was sent. One that is refused begins again. Goes on
until there were so many and the input has ended. Prints a line of JSON every hundred answers, and
what came of all in the last line.
"""

import itertools
import json
import queue
import random
import sys
import threading
from collections import Counter

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

http_address, grpc_address, name = sys.argv[1:4]
count, thread_count, seed = map(int, sys.argv[4:7])
OPEN_MAX = 4
TIMEOUT_S = 120

lock = threading.Lock()
outcomes: Counter = Counter()
wrong = []
numbers = itertools.count(1)
enough = threading.Event()  #: the input has ended


class SequenceDoors:
    """One thread's clients."""

    def __init__(self):
        self.http = triton_http.InferenceServerClient(
            http_address, network_timeout=TIMEOUT_S, connection_timeout=TIMEOUT_S
        )
        self.grpc = triton_grpc.InferenceServerClient(grpc_address)
        self.streaming = triton_grpc.InferenceServerClient(grpc_address)
        self.answers = queue.Queue()
        self.begin_stream()

    def begin_stream(self):
        self.streaming.start_stream(lambda result, error: self.answers.put((result, error)))

    def ask(self, door, x, **sequence):
        module = triton_http if door == "http" else triton_grpc
        given = module.InferInput("x", [1, 1], "INT64")
        given.set_data_from_numpy(np.full((1, 1), x, np.int64))
        if door == "stream":
            self.streaming.async_stream_infer(name, [given], **sequence)
            result, error = self.answers.get(timeout=TIMEOUT_S)
            if error is not None:
                raise error
        else:
            result = getattr(self, door).infer(name, [given], **sequence)
        return int(result.as_numpy("total").item())


class Sequence:
    def __init__(self, number, rng):
        self.id = number if number % 2 else f"text {number}"
        self.door = ("http", "grpc", "stream")[number % 3]
        self.left = rng.randint(3, 12)
        self.total = 0
        self.begun = False


def kind_of(error):
    text = str(error)
    for word, kind in (
        ("is lost", "lost"),
        ("must specify the START flag", "not-started"),
        ("did not answer within the time", "late"),
    ):
        if word in text:
            return kind
    return text[:200]


def drive(number):
    doors = SequenceDoors()
    try:
        interleave(doors, random.Random(seed * 1000 + number))
    finally:
        doors.streaming.stop_stream()


def interleave(doors, rng):
    mine = []
    while True:
        while len(mine) < OPEN_MAX:
            with lock:
                number = next(numbers)
            if number > count and enough.is_set():
                break
            mine.append(Sequence(number, rng))
        if not mine:
            return
        one = rng.choice(mine)
        x = rng.randint(1, 1000)
        ends = one.left == 1
        try:
            answer = doors.ask(
                one.door, x, sequence_id=one.id, sequence_start=not one.begun, sequence_end=ends
            )
        except (InferenceServerException, OSError) as error:
            with lock:
                outcomes[kind_of(error)] += 1
            one.begun, one.total = False, 0
            continue
        one.total = x if not one.begun else one.total + x
        one.begun = True
        one.left -= 1
        with lock:
            outcomes["answered"] += 1
            if answer != one.total:
                wrong.append([str(one.id), one.door, one.total, answer])
            if outcomes["answered"] % 100 == 0:
                print(json.dumps(outcomes), flush=True)
        if ends:
            mine.remove(one)


def run():
    threads = [threading.Thread(target=drive, args=(n,)) for n in range(thread_count)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    enough.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"outcomes": outcomes, "wrong": wrong[:10], "wrong_count": len(wrong)}))


run()
