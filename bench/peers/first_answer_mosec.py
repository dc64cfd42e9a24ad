"""A model on mosec, one worker: `first_answer_mosec.py --port N`."""

from __future__ import annotations

from typing import Any

from first_answer_predict import loaded
from mosec import Server, Worker


class Model(Worker):
    def __init__(self) -> None:
        super().__init__()
        self._predict = loaded()

    def forward(self, data: Any) -> Any:
        return self._predict(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=1)
    server.run()
