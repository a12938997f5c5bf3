"""What worker processes share."""

import os
from multiprocessing import parent_process
from threading import Thread


def end_with_parent() -> None:
    """End this process when its parent is killed, even in the middle of a job."""

    def watch() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()
