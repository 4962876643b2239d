"""Work in a thread of its own, whose error is raised where one waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Something that is being done while training continues."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        # A daemon, so that the process can end after a failure.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        """Wait until it is done. Raises what stopped it."""
        self._thread.join()
        if self._error:
            raise self._error
