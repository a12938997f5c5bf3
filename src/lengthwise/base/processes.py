"""What worker processes share."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from threading import Thread


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
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
