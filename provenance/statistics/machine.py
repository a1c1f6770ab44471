"""How functions become machine code. Importing this imports numba."""

from collections.abc import Callable
from typing import Any

import numba


def machine_code(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator for functions that run without the interpreter's lock, compiled when first called.

    The code is kept beside the module, or in the user's cache directory where that cannot be written. Where
    neither can, each process compiles anew.
    """
    njit: Any = numba.njit
    options = {"nogil": True, "error_model": "numpy"} | options

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # there is no directory to keep it in
            return njit(**options)(function)

    return decorate
