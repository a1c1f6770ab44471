"""The command line, run in the tests' own process."""

import json
from typing import Any

import pytest

from app.cli import main


class Shell:
    """Runs the command line in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        out, err = self._capture.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, out, err

    def out(self, *arguments: str) -> str:
        """Standard output of a command that succeeds without a complaint."""
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out

    def json(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.out(*arguments, "--json"))

    def refusal(self, *arguments: str) -> str:
        """The complaint of a command that was asked for what cannot be."""
        code, out, err = self(*arguments)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
        return err
