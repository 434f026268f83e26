"""Infilling items: a kernel module cut into prefix, middle and suffix, the middle being what a model has to write.

DICE's items (arXiv:2602.11715) have one shape: the middle is the assignment of the CUDA source string, the prefix holds
the imports, the suffix the declarations, the build call and `ModelNew`. Here the same is found by parsing: the strings
that a build call (`load_inline`, `RawKernel` …) compiles and that define a function, or the bodies of Triton's jit
functions. Several of them make one middle where nothing but strings, functions and comments lies between. A module
that cannot be cut so says why, as an `Uncut`.
"""

from __future__ import annotations

import ast
import enum
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dice_core.arena.static_python import Names, dotted
from dice_core.curation.normalise import cpp_form, parse

_BOM = "\ufeff"
#: Last name of a build call -> its source arguments: (keyword, position).
_BUILDERS: dict[str, tuple[tuple[str, int], ...]] = {
    "load_inline": (("cpp_sources", 1), ("cuda_sources", 2)),
    "_compile_kernel": (("kernel_source", 0),),
    "RawKernel": (("code", 0),),
    "RawModule": (("code", 0),),
    "SourceModule": (("source", 0),),
}
_JIT = frozenset({"triton.jit", "triton.runtime.jit"})
#: Nodes that set a name.
_Setter = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr | ast.arg
#: What may lie between two pieces of a middle, besides comments.
_BETWEEN = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.Import, ast.ImportFrom)


class Reason(enum.StrEnum):
    """Why a module has no infilling item."""

    NOT_PYTHON = "not_python"
    NO_KERNEL = "no_kernel"  #: nothing is built from a string, and there is no jit function
    SEPARATE_FILES = "separate_files"  #: the sources are files that the row does not hold
    NO_DEFINITION = "no_definition"  #: the strings hold declarations only
    F_STRING = "f_string"  #: what is compiled depends on values; its text is not in the module
    COMPUTED_STRING = "computed_string"  #: joined, formatted or read when the module runs
    ASSIGNED_AGAIN = "assigned_again"  #: several assignments: which one is compiled cannot be read off
    UNKNOWN_NAME = "unknown_name"  #: the name of the source is not assigned in this module
    SCATTERED = "scattered"  #: other statements lie between the pieces


@dataclass(frozen=True)
class Infilling:
    """A module cut in three: `prefix + middle + suffix` is the module, byte for byte."""

    prefix: str
    middle: str
    suffix: str
    kind: str  #: `source`, `triton`, or `mixed`
    pieces: int  #: source strings and jit functions in the middle


@dataclass(frozen=True)
class Uncut:
    """Why a module cannot be cut, and where."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class _Piece:
    start: int  # byte offsets into the module's UTF-8 form
    end: int
    kind: str
    owner: ast.AST


class _Refused(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.uncut = Uncut(reason, detail)


def cut(source: str) -> Infilling | Uncut:
    """Cut a kernel module for infilling, or say why not. Nothing of the module is run."""
    try:
        return _Module(source).cut()
    except _Refused as refused:
        return refused.uncut
    except RecursionError:
        return Uncut(Reason.NOT_PYTHON, "nested too deeply to be read")


def count_reasons(results: Iterable[Infilling | Uncut]) -> dict[str, int]:
    """How many modules were cut (`cut`) and how many were not, by reason; by name."""
    return dict(sorted(Counter("cut" if isinstance(one, Infilling) else str(one.reason) for one in results).items()))


class _Module:
    def __init__(self, source: str) -> None:
        text = source.removeprefix(_BOM)
        try:
            self.tree = parse(text)
            self.data = source.encode()
        except (SyntaxError, UnicodeEncodeError) as error:
            raise _Refused(Reason.NOT_PYTHON, str(error)) from None
        self.names = Names(ast.walk(self.tree))
        self.lines = _line_starts(self.data, len(_BOM.encode()) if text != source else 0)
        self.values: dict[str, list[tuple[_Setter, ast.expr | None]]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, _Setter):
                for name, value in _assigned(node):
                    self.values.setdefault(name, []).append((node, value))

    def cut(self) -> Infilling:
        pieces = {(one.start, one.end): one for one in (*self._strings(), *self._jit_bodies())}
        if not pieces:
            self._explain_none()
        found = sorted(pieces.values(), key=lambda one: one.start)
        start, end = found[0].start, max(one.end for one in found)
        self._nothing_else_between(found, start, end)
        kinds = {one.kind for one in found}
        return Infilling(
            self.data[:start].decode(), self.data[start:end].decode(), self.data[end:].decode(),
            kind="mixed" if len(kinds) > 1 else kinds.pop(), pieces=len(found),
        )

    def _strings(self) -> Iterator[_Piece]:
        for call in self._calls():
            for keyword, position in _BUILDERS[self._builder(call)]:
                given = next((one.value for one in call.keywords if one.arg == keyword), None)
                if given is None and position < len(call.args):
                    given = call.args[position]
                if given is not None:
                    yield from self._source(given, given, ())

    def _source(self, value: ast.expr, owner: ast.AST, seen: tuple[str, ...]) -> Iterator[_Piece]:
        """The pieces that one source argument comes from; `owner` is the statement (or the literal) to be cut out."""
        match value:
            case ast.Constant(value=str() as text):
                if "{" in cpp_form(text).split():
                    yield self._piece(owner, "source")
            case ast.Constant(value=None):
                return
            case ast.List() | ast.Tuple() if owner is value:
                for item in value.elts:
                    yield from self._source(item, item, seen)
            case ast.List() | ast.Tuple():
                # A list that has a name: one statement holds all of its literals.
                inner = [piece for item in value.elts for piece in self._source(item, item, seen)]
                literal = [piece for piece in inner if self._starts(value) <= piece.start < self._ends(value)]
                yield from (piece for piece in inner if piece not in literal)
                if literal:
                    yield self._piece(owner, "source")
            case ast.JoinedStr():
                raise _Refused(Reason.F_STRING, f"line {value.lineno}: the source is an f-string")
            case ast.Name() | ast.Attribute() if name := dotted(value):
                yield from self._named(name, value, seen)
            case _:
                shown = ast.unparse(value)
                raise _Refused(Reason.COMPUTED_STRING, f"line {value.lineno}: the source is computed: {shown:.60}")

    def _named(self, name: str, use: ast.expr, seen: tuple[str, ...]) -> Iterator[_Piece]:
        values = self.values.get(name, [])
        if not values or name in seen:
            raise _Refused(Reason.UNKNOWN_NAME, f"line {use.lineno}: {name} is not assigned in this module")
        if len(values) > 1:
            lines = ", ".join(str(statement.lineno) for statement, _ in values)
            raise _Refused(Reason.ASSIGNED_AGAIN, f"{name} is assigned in lines {lines}")
        statement, value = values[0]
        if value is None:
            raise _Refused(Reason.COMPUTED_STRING, f"line {statement.lineno}: {name} is set, but not to a text")
        yield from self._source(value, statement, (*seen, name))

    def _jit_bodies(self) -> Iterator[_Piece]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and any(self._is_jit(one) for one in node.decorator_list):
                start = self._starts(node.body[0])
                line = self.lines[node.body[0].lineno - 1]
                # The indentation belongs to the body, unless the body stands on the line of its `def`.
                start = line if not self.data[line:start].strip(b" \t\f") else start
                yield _Piece(start, self._ends(node), "triton", node)

    def _is_jit(self, decorator: ast.expr) -> bool:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        return self.names.resolve(called) in _JIT

    def _calls(self) -> Iterator[ast.Call]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and self._builder(node):
                yield node

    def _builder(self, call: ast.Call) -> str:
        last = self.names.resolve(call.func).split(".")[-1]
        return last if last in _BUILDERS else ""

    def _explain_none(self) -> None:
        if any(self._calls()):
            raise _Refused(Reason.NO_DEFINITION, "no string that is compiled defines a function")
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and self.names.resolve(node.func).endswith("cpp_extension.load"):
                raise _Refused(Reason.SEPARATE_FILES, f"line {node.lineno}: load() compiles files")
        raise _Refused(Reason.NO_KERNEL, "nothing is compiled from a string, and there is no jit function")

    def _nothing_else_between(self, pieces: list[_Piece], start: int, end: int) -> None:
        owners = {one.owner for one in pieces}
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.stmt) or node in owners:
                continue
            low, high = self._starts(node), self._ends(node)
            if low >= end or high <= start or any(one.start <= low and high <= one.end for one in pieces):
                continue
            if low <= start and high >= end:
                continue  # around all of the middle, such as the class or the call that it stands in
            inside = low >= start and high <= end
            plain = isinstance(node, _BETWEEN) and not any(
                isinstance(inner, ast.Call) and self._builder(inner) for inner in ast.walk(node))
            header = isinstance(node, ast.FunctionDef) and any(one.owner is node for one in pieces)
            if not header and not (inside and plain):
                raise _Refused(Reason.SCATTERED, f"line {node.lineno}: {type(node).__name__} lies between the sources")

    def _piece(self, node: ast.AST, kind: str) -> _Piece:
        return _Piece(self._starts(node), self._ends(node), kind, node)

    def _starts(self, node: ast.AST) -> int:
        assert isinstance(node, ast.stmt | ast.expr)
        return self.lines[node.lineno - 1] + node.col_offset

    def _ends(self, node: ast.AST) -> int:
        assert isinstance(node, ast.stmt | ast.expr)
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.lines[node.end_lineno - 1] + node.end_col_offset


def _assigned(node: _Setter) -> Iterator[tuple[str, ast.expr | None]]:
    """Names and attributes that a node sets, each with its value where that is written beside it.

    Scopes are not told apart: a name that two functions use for different things is refused rather than guessed.
    """
    match node:
        case ast.Assign():
            for target in node.targets:
                if name := dotted(target):
                    yield name, node.value
                else:
                    yield from ((name, None) for one in ast.walk(target) if (name := dotted(one)))
        case ast.AnnAssign() if node.value is not None and (name := dotted(node.target)):
            yield name, node.value
        case ast.AugAssign() | ast.For() | ast.NamedExpr() if name := dotted(node.target):
            yield name, None
        case ast.arg():
            yield node.arg, None


def _line_starts(data: bytes, first: int) -> list[int]:
    """Byte offset of each line as Python's tokenizer counts them: after LF, CR LF and CR, after nothing else."""
    starts = [first]
    place = 0
    while place < len(data):
        byte = data[place]
        place += 1
        if byte == 0x0D and data[place:place + 1] == b"\n":
            place += 1
        if byte in (0x0A, 0x0D):
            starts.append(place)
    return starts
