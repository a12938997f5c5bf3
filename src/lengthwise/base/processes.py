"""What worker processes share."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from threading import Event, Thread, current_thread, main_thread


def end_with_parent() -> None:
    """End this process when its parent is killed, even in the middle of a job."""

    def watch() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def children_without_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile never see Ctrl-C: it is for this one to end them.

    Otherwise a process that is still importing would end with a traceback. A Ctrl-C that comes
    meanwhile is delivered afterwards.
    """
    resource_tracker.ensure_running()  # which unblocks the signal when it starts
    received = Event()
    is_main = current_thread() is main_thread()  # others never get a KeyboardInterrupt
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # The mask is this thread's, and the children's. Other threads, such as torch's, take signals.
    handler = signal.signal(signal.SIGINT, lambda *_: received.set()) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if received.is_set():
        signal.raise_signal(signal.SIGINT)
