"""The witness: what it reports of small made-up sources, and how it leaves the interpreter behind."""

import sys
import textwrap
import threading
from collections.abc import Iterator
from types import FrameType

import pytest
import torch

from provenance.witness.execute import load
from provenance.witness.tracer import Observation, watch, witness

NAME = "example/source.py"
X = torch.tensor([1.0, 2.0, 3.0])


def observe(
    text: str, run: str, *arguments: object, calls: tuple[str, ...] = (), snapshot: bool = False
) -> list[Observation]:
    """Execute a source, call one of its functions, and give back what was seen."""
    source = textwrap.dedent(text).encode()
    function = load(source, NAME, {"torch": torch, "helper": helper})[run]
    assert callable(function)
    return witness(lambda: function(*arguments), NAME, source, calls=calls, snapshot=snapshot)


def rows(seen: list[Observation], kind: str | None = None) -> list[tuple[str, int, str, str]]:
    return [(o.function, o.line, o.kind, o.expression) for o in seen if kind in (None, o.kind)]


def helper(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    inner = x + 1
    return inner, inner * 2


def test_every_kind_of_target_is_reported_in_the_order_of_execution() -> None:
    seen = observe(
        """\
        def f(x, box, named):
            a, (b, *rest) = x, (x + 1, x + 2)
            box.value = c = a * 2
            named['key'] = x
            x += 1
            for row in [a, b]:
                d = row
            number: object = x
            if (e := x) is not None:
                pass
            count = 3
        """,
        "f",
        X.clone(),
        torch.nn.Module(),
        {},
    )
    assert rows(seen) == [
        ("f", 2, "assign", "a"),
        ("f", 2, "assign", "b"),
        ("f", 3, "assign", "box.value"),
        ("f", 3, "assign", "c"),
        ("f", 4, "assign", "named['key']"),
        ("f", 5, "assign", "x"),
        ("f", 6, "assign", "row"),
        ("f", 7, "assign", "d"),
        ("f", 6, "assign", "row"),
        ("f", 7, "assign", "d"),
        ("f", 8, "assign", "number"),
        ("f", 9, "assign", "e"),
    ]
    assert [o.occurrence for o in seen if o.expression == "d"] == [0, 1]


def test_a_name_bound_again_to_the_same_object_is_reported_again() -> None:
    seen = observe(
        """\
        def same(x):
            return x
        def f(x):
            x = same(x)
            x = same(
                x
            )
        """,
        "f",
        X,
    )
    assert rows(seen, "assign") == [("f", 4, "assign", "x"), ("f", 5, "assign", "x")]
    assert all(o.value is X for o in seen)


def test_a_return_inside_with_has_its_own_line_and_each_member_its_own_text() -> None:
    seen = observe(
        """\
        import torch
        def f(x):
            with torch.no_grad():
                y = x + 1
                if y.sum() < 0:
                    return y
                return y * 2, x
        def g(x):
            try:
                return x + 1
            finally:
                x = None
        def pair(x):
            return (x, x)[:2]
        def h(x):
            f(x)
            g(x)
            pair(x)
            return (lambda v: v + 5)(x)
        """,
        "h",
        X,
    )
    assert rows(seen, "return") == [
        ("f", 7, "return", "y * 2"),
        ("f", 7, "return", "x"),
        ("g", 10, "return", "x + 1"),
        ("pair", 14, "return", "(x, x)[:2][0]"),
        ("pair", 14, "return", "(x, x)[:2][1]"),
        ("h.<locals>.<lambda>", 19, "return", "v + 5"),
        ("h", 19, "return", "(lambda v: v + 5)(x)"),
    ]
    assert seen[2].value.tolist() == [4.0, 6.0, 8.0]


def test_arguments_carry_the_expression_that_the_caller_wrote_and_the_value_that_arrived() -> None:
    seen = observe(
        """\
        class Layer:
            def __init__(self, weight):
                self.weight = weight
            def apply(self, x, *more, bias=None, **named):
                return x * self.weight
        def f(x):
            layer = Layer(x + 1)
            return layer.apply(x * 2, x * 3, x * 4, bias=x
                               * 5, other=x * 6)
        """,
        "f",
        X,
    )
    arguments = {(o.line, o.expression): o.value[0].item() for o in seen if o.kind == "argument"}
    assert arguments == {
        (7, "x + 1"): 2,
        (8, "x * 2"): 2,
        (8, "x * 3"): 3,
        (8, "x * 4"): 4,
        (8, "x * 5"): 5,
        (8, "x * 6"): 6,
    }
    assert all(o.function == "f" and o.stack == () for o in seen if o.kind == "argument")


def test_a_call_through_something_else_reports_no_arguments() -> None:
    seen = observe(
        """\
        import helper
        def wrapped(x):
            return -x
        def indirect(x):
            return list(map(wrapped, [x, x]))
        """,
        "indirect",
        X,
    )
    assert rows(seen, "argument") == []
    inner = [o for o in seen if o.function == "wrapped"]
    assert [(o.stack, o.occurrence) for o in inner] == [((("indirect", 5),), 0), ((("indirect", 5),), 1)]


def test_nested_functions_have_qualified_names_and_the_stack_of_their_callers() -> None:
    seen = observe(
        """\
        def outer(x):
            def inner(v):
                w = v + 1
                return w
            y = inner(x)
            return inner(inner(y))
        def top(x):
            return [outer(v) for v in [x, x]]
        """,
        "top",
        X,
    )
    stored = [o for o in seen if o.expression == "w" and o.kind == "assign"]
    assert {o.function for o in stored} == {"outer.<locals>.inner"}
    first, second = (("top", 8), ("outer", 5)), (("top", 8), ("outer", 6))
    assert [(o.stack, o.occurrence) for o in stored] == [
        (first, 0), (second, 0), (second, 1), (first, 1), (second, 2), (second, 3),
    ]  # fmt: skip
    # The comprehension's own variable is no statement's target.
    assert not [o for o in seen if o.function == "top" and o.kind == "assign"]


def test_results_of_watched_files_are_reported_with_the_calling_line() -> None:
    text = """\
        import helper
        def f(x):
            return (x
                    + helper(x)[1] * helper(x * 2)[0])
        """
    assert rows(observe(text, "f", X), "call") == []
    seen = observe(text, "f", X, calls=(__file__,))
    assert rows(seen, "call") == [
        ("f", 4, "call", "helper(x)[0]"),
        ("f", 4, "call", "helper(x)[1]"),
        ("f", 4, "call", "helper(x * 2)[0]"),
        ("f", 4, "call", "helper(x * 2)[1]"),
    ]
    assert seen[3].value.tolist() == [6.0, 10.0, 14.0]


def test_generators_store_but_neither_their_yields_nor_their_arguments_are_taken_for_returns() -> None:
    seen = observe(
        """\
        def numbers(x):
            y = x + 1
            return (yield y)
        def f(x):
            for z in numbers(x * 2):
                break
            return x
        """,
        "f",
        X,
    )
    assert rows(seen) == [("numbers", 2, "assign", "y"), ("f", 5, "assign", "z"), ("f", 7, "return", "x")]


def test_values_are_references_unless_snapshots_are_asked_for() -> None:
    text = """\
        def f(x):
            y = x + 0
            y.add_(10)
            return None
        """
    assert observe(text, "f", X)[0].value.tolist() == [11.0, 12.0, 13.0]
    assert observe(text, "f", X, snapshot=True)[0].value.tolist() == [1.0, 2.0, 3.0]


def test_parameters_are_reported_as_plain_tensors_on_the_same_memory() -> None:
    weight = torch.nn.Parameter(X.clone())
    (seen,) = observe("def f(x):\n    y = x\n", "f", weight)
    assert type(seen.value) is torch.Tensor
    assert seen.value.data_ptr() == weight.data_ptr()


def test_a_store_that_fails_is_not_reported() -> None:
    seen = observe(
        """\
        class Box:
            value = property(lambda self: self.kept)
        def f(x):
            box = Box()
            box.kept = x
            try:
                box.value = x
            except AttributeError:
                return x
        """,
        "f",
        X,
    )
    assert rows(seen) == [("f", 5, "assign", "box.kept"), ("f", 9, "return", "x")]


@pytest.fixture
def earlier_tracer() -> Iterator[object]:
    """A trace function of somebody else's, as a coverage tool has one."""

    def earlier(frame: FrameType, event: str, arg: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(earlier)
    yield earlier
    sys.settrace(before)


def test_the_previous_trace_function_is_put_back_after_a_run_and_after_an_error(
    earlier_tracer: object,
) -> None:
    source = b"def f(x):\n    y = x\n    return y.no_such_attribute\n"
    f = load(source, NAME, {})["f"]
    assert callable(f)
    seen: list[Observation] = []
    assert watch(lambda: 7, NAME, source, seen.append) == 7
    assert sys.gettrace() is earlier_tracer
    with pytest.raises(AttributeError):
        watch(lambda: f(X), NAME, source, seen.append)
    assert sys.gettrace() is earlier_tracer
    assert rows(seen) == [("f", 2, "assign", "y")]


def test_an_error_of_the_observer_ends_the_run_and_the_tracing(earlier_tracer: object) -> None:
    source = b"def f(x):\n    y = x\n    return y\n"
    f = load(source, NAME, {})["f"]
    assert callable(f)

    def refuse(observation: Observation) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        watch(lambda: f(X), NAME, source, refuse)
    assert sys.gettrace() is earlier_tracer


def test_other_threads_are_not_traced() -> None:
    source = b"def f(x):\n    y = x\n    return y\n"
    f = load(source, NAME, {})["f"]
    assert callable(f)
    results: list[object] = []
    tracers: list[type] = []

    def in_thread() -> None:
        tracers.append(type(sys.gettrace()))
        results.append(f(X))

    def run() -> None:
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()

    run()
    assert witness(run, NAME, source) == []
    assert results == [X, X]
    assert tracers[0] is tracers[1]  # none, or the one of a coverage tool
    assert len(witness(lambda: f(X), NAME, source)) == 2


def test_a_witness_inside_a_witness_reports_to_its_own_list_only() -> None:
    source = b"def f(x):\n    y = x\n    return y\n"
    f = load(source, NAME, {})["f"]
    assert callable(f)
    inner: list[Observation] = []

    def run() -> None:
        inner.extend(witness(lambda: f(X), NAME, source))
        f(X)

    assert len(witness(run, NAME, source)) == 2
    assert len(inner) == 2
