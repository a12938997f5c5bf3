"""Ctrl-C and SIGTERM that wait for the end of a training step."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether a signal has come. A second Ctrl-C stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received = threading.Event()

    def receive(number: int, frame: Any) -> None:
        if received.is_set():
            raise KeyboardInterrupt
        received.set()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, receive) for number in signals}
    try:
        yield received.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
