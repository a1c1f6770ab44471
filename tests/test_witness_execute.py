"""Source bytes executed as a module that exists nowhere else."""

import sys
import textwrap
from collections.abc import Callable
from types import ModuleType

import pytest

from provenance.errors import InvalidInput
from provenance.witness.execute import installed, load


def test_a_loaded_source_enters_no_module_and_imports_only_what_is_provided() -> None:
    before = dict(sys.modules)
    sub = type("package", (), {"deep": type("deep", (), {"name": 5})})
    source = b"import a.deep\nimport a.deep as d\nfrom a.deep import name\nimport b.c\nx = a.deep.name, d.name\n"
    namespace = load(source, "file.py", {"a": sub, "b": sub, "b.c": sub})
    assert namespace["x"] == (5, 5)
    assert namespace["name"] == 5
    assert namespace["a"] is sub
    assert sys.modules == before


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (b"import os\n", "'os'"),
        (b"import a.missing\n", "'a.missing'"),
        (b"from . import x\n", "relative"),
        (b"def f(:\n", "invalid syntax"),
        (b"x = '\0'\n", "null bytes"),
    ],
)
def test_what_cannot_be_executed_is_refused_with_the_reason(source: bytes, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        load(source, "file.py", {"a": object()})


def test_an_installed_module_is_given_with_the_name_that_its_code_carries() -> None:
    file = installed(textwrap)
    function: Callable[[str], str] = textwrap.dedent
    assert file.filename == function.__code__.co_filename
    assert b"def dedent" in file.source
    with pytest.raises(InvalidInput, match="builtin_module"):
        installed(ModuleType("builtin_module"))
