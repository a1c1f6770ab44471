"""A thread that others wait for, and that ends without leaving them without an answer."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from provenance.errors import Unavailable

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class OneThread(ThreadPoolExecutor):
    """Does one thing at a time. Once it is closed, who asks and who waits already get Unavailable."""

    def __init__(self, name: str) -> None:
        super().__init__(max_workers=1, thread_name_prefix=name)
        self.closed = False

    def submit(
        self, work: Callable[_Given, _Found], /, *args: _Given.args, **options: _Given.kwargs
    ) -> Future[_Found]:
        """Do it when its turn comes. Raises Unavailable once closed, and so does what it returns."""

        def unless_closed() -> _Found:
            self._check_open()
            return work(*args, **options)

        self._check_open()
        try:
            return super().submit(unless_closed)
        except RuntimeError:  # closed since
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("The server is stopping.", hint="Ask again when it has started anew.")

    def close(self) -> None:
        """Finish what runs."""
        self.closed = True
        self.shutdown(wait=True)
