"""Batches drawn ahead by a thread, so that a GPU need not wait for the CPU that draws them."""

from collections.abc import Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
END = object()
SECONDS_BETWEEN_LOOKS = 0.1  # of the thread, at whether anyone still wants its items


def draw_ahead(items: Iterator[T], count: int) -> Iterator[T]:
    """The same items in the same order, of which up to `count` are drawn before they are asked for.

    >>> list(draw_ahead(iter("abc"), 2)), list(draw_ahead(iter("abc"), 0))
    (['a', 'b', 'c'], ['a', 'b', 'c'])
    """
    if not count:
        yield from items
        return
    drawn: Queue[object] = Queue(count)
    stopped = Event()
    thread = Thread(target=draw, args=(items, drawn, stopped), daemon=True)
    thread.start()
    try:
        while (item := drawn.get()) is not END:
            if isinstance(item, ThreadError):
                raise item.error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()


class ThreadError:
    """An error of the thread, for whoever asks for the next item."""

    def __init__(self, error: BaseException):
        self.error = error


def draw(items: Iterator[T], drawn: "Queue[object]", stopped: Event) -> None:
    try:
        for item in items:
            if not put(item, drawn, stopped):
                return
        put(END, drawn, stopped)
    except BaseException as error:
        put(ThreadError(error), drawn, stopped)


def put(item: object, drawn: "Queue[object]", stopped: Event) -> bool:
    """Wait for room; returns whether anyone still wants the item."""
    while not stopped.is_set():
        try:
            drawn.put(item, timeout=SECONDS_BETWEEN_LOOKS)
            return True
        except Full:
            continue
    return False
