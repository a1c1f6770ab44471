"""Runs a callable and reports every tensor that one file's code assigns, passes or returns.

Only the current thread is traced, and only frames whose code carries the given file name. What the
code calls elsewhere runs untraced, except that results of chosen other files are reported too.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import CodeType, FrameType, MethodType
from typing import Any, Literal, TypeVar

import torch

from provenance.witness.code_map import Call, CodeMap, FileMap, Return, Target

Kind = Literal["assign", "return", "call", "argument"]
Stack = tuple[tuple[str, int], ...]

_Result = TypeVar("_Result")
_Local = Callable[[FrameType, str, Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One tensor that the traced file's code named, at the moment it was named.

    `kind` is how: *assign* (any stored target, also of a `for` or `with`), *return* (the text of the
    returned expression), *argument* (the text of an expression passed to a function of the same
    file, seen when that function starts), *call* (the text of a call of another watched file).
    `line` is the target's, the return statement's or the call's own line. `stack` holds the calling
    (function, line) pairs within the file, outermost first. `occurrence` counts from 0 how often the
    same kind, stack, function, line and expression came before.

    `value` is a plain torch.Tensor. It shares memory with what the code saw, so an in-place change
    made later shows in it, unless the run was asked for snapshots.
    """

    function: str
    line: int
    kind: Kind
    expression: str
    stack: Stack
    occurrence: int
    value: torch.Tensor


def witness(
    run: Callable[[], object],
    filename: str,
    source: bytes,
    *,
    calls: Collection[str] = (),
    snapshot: bool = False,
) -> list[Observation]:
    """Everything that the file's code named with a tensor while `run()` ran, in order of execution.

    `calls` are the file names whose functions' results are reported as kind *call*. `snapshot`
    copies every value. Errors of `run` pass through; the previous trace function is put back.
    """
    seen: list[Observation] = []
    watch(run, filename, source, seen.append, calls=calls, snapshot=snapshot)
    return seen


def watch(
    run: Callable[[], _Result],
    filename: str,
    source: bytes,
    observer: Callable[[Observation], object],
    *,
    calls: Collection[str] = (),
    snapshot: bool = False,
    lines: set[int] | None = None,
) -> _Result:
    """As `witness`, but hands over each observation at once, and returns what `run()` returned.

    The numbers of all lines that ran are added to `lines`. An error of the observer ends the run
    with that error.
    """
    executed = set() if lines is None else lines
    tracer = _Tracer(FileMap(source, filename), filename, frozenset(calls), observer, snapshot, executed)
    previous = sys.gettrace()
    sys.settrace(tracer.enter)
    try:
        return run()
    finally:
        sys.settrace(previous)


class _Tracer:
    """Knows which functions of the file are running, and numbers what they report."""

    def __init__(
        self,
        files: FileMap,
        filename: str,
        calls: frozenset[str],
        observer: Callable[[Observation], object],
        snapshot: bool,
        lines: set[int],
    ) -> None:
        self.lines = lines
        self._map = files
        self._filename = filename
        self._calls = calls
        self._observer = observer
        self._snapshot = snapshot
        self._counts: Counter[tuple[Kind, Stack, str, int, str]] = Counter()
        self.running: list[_Activation] = []

    def enter(self, frame: FrameType, event: str, arg: object) -> _Local | None:
        """Python calls this for every function that starts."""
        name = frame.f_code.co_filename
        if name == self._filename:
            return self._enter_file(frame)
        if name in self._calls and self.running and frame.f_back is self.running[-1].frame:
            return self._enter_call(frame)
        return None

    def _enter_file(self, frame: FrameType) -> _Local:
        code = self._map.of(frame.f_code)
        caller = self.running[-1] if self.running else None
        activation = _Activation(self, frame, code, caller)
        if caller is not None and frame.f_back is caller.frame:
            call = caller.code.calls.get(caller.frame.f_lasti)
            if call is not None:
                for expression, value in _passed(call, caller.frame, frame):
                    caller.report("argument", caller.frame.f_lineno, expression, value)
        self.running.append(activation)
        # Instructions say when a target has been stored; lines alone cannot.
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return activation.step

    def _enter_call(self, frame: FrameType) -> _Local | None:
        caller = self.running[-1]
        call = caller.code.calls.get(caller.frame.f_lasti)
        if call is None:
            return None
        line, text = caller.frame.f_lineno, call.expression
        frame.f_trace_lines = False

        def finish(frame: FrameType, event: str, arg: object) -> _Local:
            if event == "return":
                caller.report_result("call", line, text, text, (), arg)
            return finish

        return finish

    def leave(self, activation: "_Activation") -> None:
        """Forget a function that ended, and any generator that ended inside it unseen."""
        if activation in self.running:
            del self.running[self.running.index(activation) :]

    def report(self, kind: Kind, stack: Stack, function: str, line: int, text: str, value: torch.Tensor) -> None:
        """Number one observation and hand it over."""
        key = (kind, stack, function, line, text)
        occurrence = self._counts[key]
        self._counts[key] = occurrence + 1
        value = _plain(value, self._snapshot)
        self._observer(Observation(function, line, kind, text, stack, occurrence, value))


class _Activation:
    """One running call of a function of the file. Comprehensions count as part of their function."""

    __slots__ = ("_pending", "_returning", "_tracer", "code", "frame", "function", "stack")

    def __init__(self, tracer: _Tracer, frame: FrameType, code: CodeMap, caller: "_Activation | None") -> None:
        self._tracer = tracer
        self._pending: tuple[Target, ...] | None = None
        self._returning: Return | None = None
        self.frame = frame
        self.code = code
        self.function = code.function
        self.stack: Stack = ()
        if caller is not None and code.comprehension:
            self.function, self.stack = caller.function, caller.stack
        elif caller is not None:
            self.stack = (*caller.stack, (caller.function, caller.frame.f_lineno))

    def step(self, frame: FrameType, event: str, arg: object) -> _Local:
        """Python calls this before every instruction, on an error and at the end."""
        if event == "opcode":
            if self._pending is not None:
                self._report_stores(self._pending)
            offset = frame.f_lasti
            self._tracer.lines.add(frame.f_lineno)
            self._pending = self.code.stores.get(offset)
            self._returning = self.code.returns.get(offset, self._returning)
        elif event == "exception":
            self._pending = None
        elif event == "return":
            self._tracer.leave(self)
            point = self._returning
            if point is not None and not self.code.suspends:
                self.report_result("return", point.line, point.expression, point.prefix, point.members, arg)
        return self.step

    def report(self, kind: Kind, line: int, expression: str, value: object) -> None:
        """Report a value if it is a tensor."""
        if isinstance(value, torch.Tensor):
            self._tracer.report(kind, self.stack, self.function, line, expression, value)

    def report_result(
        self, kind: Kind, line: int, expression: str, prefix: str, members: tuple[str, ...], value: object
    ) -> None:
        """Report a tensor, or the tensors in a tuple or list, by their own texts or by index."""
        if not isinstance(value, tuple | list):
            self.report(kind, line, expression, value)
            return
        own = len(members) == len(value)
        for index, member in enumerate(value):
            self.report(kind, line, members[index] if own else f"{prefix}[{index}]", member)

    def _report_stores(self, targets: tuple[Target, ...]) -> None:
        frame = self.frame
        for target in targets:
            if target.name is None:
                value = _read(target.reader, frame)
            else:
                value = (frame.f_globals if target.is_global else frame.f_locals).get(target.name)
            self.report("assign", target.line, target.expression, value)


def _passed(call: Call, caller: FrameType, callee: FrameType) -> list[tuple[str, object]]:
    """The passed expressions with the values that the callee received; empty where it is unsure."""
    code = callee.f_code
    skipped = _bound_parameters(_read(call.callee, caller), code)
    if skipped is None:
        return []
    values = callee.f_locals
    count = code.co_argcount
    named = code.co_varnames[: count + code.co_kwonlyargcount]
    extra = code.co_varnames[len(named) :]
    rest: tuple[object, ...] = values[extra[0]] if code.co_flags & 0x04 else ()
    words: dict[str, object] = values[extra[bool(code.co_flags & 0x04)]] if code.co_flags & 0x08 else {}
    passed: list[tuple[str, object]] = []
    for index, expression in enumerate(call.positional, skipped):
        passed.append((expression, values[named[index]] if index < count else rest[index - count]))
    for name, expression in call.keywords:
        passed.append((expression, values[name] if name in named else words.get(name)))
    return passed


def _bound_parameters(called: object, code: CodeType) -> int | None:
    """How many leading parameters the call itself did not pass; None if it called something else."""
    bound = 0
    if isinstance(called, MethodType):
        called, bound = called.__func__, 1
    elif isinstance(called, type):
        called, bound = getattr(called, "__init__", None), 1
    return bound if getattr(called, "__code__", None) is code else None


def _read(reader: CodeType | None, frame: FrameType) -> object:
    if reader is None:
        return None
    try:
        return eval(reader, frame.f_globals, frame.f_locals)
    except Exception:
        # What cannot be read is not testified for. An error here would end up in the traced code.
        return None


def _plain(value: torch.Tensor, snapshot: bool) -> torch.Tensor:
    """The same values as a plain tensor, bit for bit."""
    if snapshot:
        return value.as_subclass(torch.Tensor).detach().clone()
    return value if type(value) is torch.Tensor else value.as_subclass(torch.Tensor).detach()
