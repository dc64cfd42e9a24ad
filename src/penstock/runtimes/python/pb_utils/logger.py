"""Triton's `Logger` for models: lines of the instance's log, with their level."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import ClassVar


class TritonLogLevel(IntEnum):
    INFO, WARNING, ERROR, VERBOSE = range(4)


class Logger:
    """Writes to the instance's log through standard error; a level other than INFO stands first."""

    LogLevel: ClassVar[type[TritonLogLevel]] = TritonLogLevel
    INFO: ClassVar[TritonLogLevel] = TritonLogLevel.INFO
    WARNING: ClassVar[TritonLogLevel] = TritonLogLevel.WARNING
    ERROR: ClassVar[TritonLogLevel] = TritonLogLevel.ERROR
    VERBOSE: ClassVar[TritonLogLevel] = TritonLogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: TritonLogLevel = TritonLogLevel.INFO) -> None:
        known = TritonLogLevel(level)
        mark = "" if known is TritonLogLevel.INFO else f"{known.name}: "
        print(f"{mark}{message}", file=sys.stderr, flush=True)

    @staticmethod
    def log_info(message: str) -> None:
        Logger.log(message, TritonLogLevel.INFO)

    @staticmethod
    def log_warn(message: str) -> None:
        Logger.log(message, TritonLogLevel.WARNING)

    @staticmethod
    def log_error(message: str) -> None:
        Logger.log(message, TritonLogLevel.ERROR)

    @staticmethod
    def log_verbose(message: str) -> None:
        Logger.log(message, TritonLogLevel.VERBOSE)
