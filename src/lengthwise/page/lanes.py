"""Worker processes that compute for the page, each one job at a time and with a time limit.

A long sum must not make the page wait. Jobs therefore run in processes of their own: short ones in
one lane, long ones in another. A job that takes too long is ended with its process.
"""

import asyncio
import json
import multiprocessing
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from lengthwise.base import UsageError
from lengthwise.base.errors import shorten
from lengthwise.base.processes import end_with_parent

Job = Callable[..., Any]  # returns JSON, or bytes
DONE, REFUSED, FAILED = b"d", b"r", b"f"  # the first byte of a worker's answer
READY = b"ready"  # a worker's first message
LONGEST_SENTENCE = 300  # characters of a refusal
START_SECONDS = 300.0  # for imports, on a busy machine


class Refusal(Exception):
    """A request that can't be answered: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Lane:
    """A process that does jobs in turn. `most` may wait; each has `seconds`."""

    def __init__(self, find_jobs: Callable[[], Mapping[str, Job]], seconds: float, most: int):
        self.find_jobs, self.seconds, self.most = find_jobs, seconds, most
        self.turn = asyncio.Lock()
        self.waiting = 0
        self.process: Any = None
        self.connection: Connection | None = None
        self.is_ready = False

    def start(self) -> None:
        """Start the process, which then imports what it needs before the first job comes."""
        context = multiprocessing.get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=work, args=(other_end, self.find_jobs), daemon=True)
        self.process.start()
        other_end.close()
        self.is_ready = False

    def stop(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self.process.kill()
            self.process.join()

    async def run(
        self,
        job: str,
        arguments: Mapping[str, Any],
        is_unwanted: Callable[[], Awaitable[bool]] | None = None,
    ) -> bytes:
        """The result of a job, as the process sent it; a Refusal says why there is none."""
        if self.waiting >= self.most:
            raise Refusal(503, "the page is busy; try again in a moment")
        self.waiting += 1
        try:
            async with self.turn:
                if is_unwanted is not None and await is_unwanted():
                    raise Refusal(499, "the request was withdrawn")
                # A client that goes away must not leave an answer in the pipe for the next one.
                return await asyncio.shield(asyncio.ensure_future(self.do(job, arguments)))
        finally:
            self.waiting -= 1

    async def do(self, job: str, arguments: Mapping[str, Any]) -> bytes:
        if self.connection is None or not self.process.is_alive():
            self.stop()
            self.start()
        answer = await asyncio.to_thread(self.exchange, job, arguments)
        if answer is None:
            self.stop()
            raise Refusal(504, f"this took longer than {self.seconds:g} s and was stopped")
        kind, rest = answer[:1], answer[1:]
        if kind == DONE:
            return rest
        raise Refusal(400 if kind == REFUSED else 500, rest.decode())

    def exchange(self, job: str, arguments: Mapping[str, Any]) -> bytes | None:
        assert self.connection is not None
        try:
            if not self.is_ready:
                if not self.connection.poll(START_SECONDS):
                    return None
                self.is_ready = self.connection.recv_bytes() == READY
            self.connection.send((job, dict(arguments)))
            return self.connection.recv_bytes() if self.connection.poll(self.seconds) else None
        except (EOFError, OSError):
            self.stop()
            return FAILED + b"the process that computes this ended; it may have run out of memory"


def work(parent: Connection, find_jobs: Callable[[], Mapping[str, Job]]) -> None:
    """Do the jobs that the parent sends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, and its end ends us
    end_with_parent()
    jobs = find_jobs()
    with suppress(OSError):
        parent.send_bytes(READY)
    while True:
        try:
            name, arguments = parent.recv()
        except (EOFError, OSError):
            return
        answer = compute(jobs[name], arguments)
        with suppress(OSError):
            parent.send_bytes(answer)


def compute(job: Job, arguments: Mapping[str, Any]) -> bytes:
    """A job's result after a byte that says whether there is one, or a sentence."""
    try:
        result = job(**arguments)
        return DONE + (result if isinstance(result, bytes) else to_json(result))
    except UsageError as error:
        return REFUSED + shorten(str(error), LONGEST_SENTENCE).encode(errors="replace")
    except MemoryError:
        return REFUSED + b"this machine does not have enough memory for that"
    except Exception as error:
        if isinstance(error, RuntimeError) and "memory" in str(error):
            return REFUSED + b"this machine does not have enough memory for that"
        traceback.print_exc(file=sys.stderr)
        return FAILED + f"an error in the program: {type(error).__name__}".encode()


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
