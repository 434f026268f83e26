"""Canonical form of Python and C++ source, so that two spellings of one program have one fingerprint.

What is taken away: comments, docstrings, formatting, type annotations, the names of local variables, parameters and
module-level variables, and inside string constants that hold C++ the comments and the spacing. What stays: names of
classes, functions, attributes, imports and keyword arguments, every operator and every constant. Renaming respects
scopes, so two programs of different meaning keep different fingerprints.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache

from dice_core.files import sha256_bytes

#: Sources whose fingerprints are kept: several steps ask for the same ones.
_REMEMBERED = 8_192

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

_CPP_MARK = re.compile(r"#include|__global__|__device__|torch::|at::Tensor|\bvoid\s+\w+\s*\(|;\s*\}")
_CPP_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
      | (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<word>[A-Za-z0-9_.]+)
      | (?P<operator><<<|>>>|<<=|>>=|->\*|\.\.\.|::|->|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\|)
      | (?P<other>\S)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def parse(source: str) -> ast.Module:
    """Parse Python without its warnings about the text.

    Raises:
        SyntaxError: `source` is not Python (also null bytes and nesting beyond the parser's depth).
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or type(error).__name__) from None


def tidy(text: str) -> str:
    """The text with Unix line ends and without white space at line ends or blank lines around it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n")


@lru_cache(maxsize=_REMEMBERED)
def fingerprint(source: str) -> str:
    """Hex sha256 of the canonical form; of the tidied text where `source` is not Python."""
    return _digest(source, numbers=True)


@lru_cache(maxsize=_REMEMBERED)
def structure_fingerprint(source: str) -> str:
    """Fingerprint of the classes and helper functions alone, with every number blanked.

    The same module with other sizes, other input values or other size constants has the same one; that is also how
    KernelBench's own revisions differ from each other. A source without a class has its whole text as structure.
    """
    return _digest(source, numbers=False)


def _digest(source: str, *, numbers: bool) -> str:
    try:
        tree = parse(source)
        canonical = _Canonical(numbers)
        canonical.module(tree if numbers else _definitions(tree))
    except (SyntaxError, RecursionError):
        return sha256_bytes("text\n" + tidy(source))
    return sha256_bytes("python\n" + "\n".join(canonical.out))


def cpp_form(code: str) -> str:
    """C++ as its tokens, one space apart; comments gone, each preprocessor directive on a line of its own."""
    pieces: list[str] = []
    for match in _CPP_TOKEN.finditer(code):
        if match.lastgroup == "directive":
            words = cpp_form(re.sub(r"^[ \t]*#", "", match.group()).replace("\\\n", " "))
            pieces.append(f"\n#{words}\n")
        elif match.lastgroup != "comment":
            pieces.append(match.group())
    return " ".join(pieces)


class _Canonical:
    """Writes a module's tree as a list of words with bound names replaced by their place of first appearance."""

    def __init__(self, numbers: bool) -> None:
        self.out: list[str] = []
        self._numbers = numbers
        self._scopes: list[dict[str, str]] = []

    def module(self, tree: ast.Module) -> None:
        bound, _ = _bindings(tree.body)
        self._scopes.append(self._scope(bound))
        self._body(tree.body)

    def _scope(self, names: set[str]) -> dict[str, str]:
        # Filled in order of first appearance (see `_name`); "" means bound here, not met yet.
        return dict.fromkeys(names, "")

    def _name(self, name: str) -> str:
        for depth in range(len(self._scopes) - 1, -1, -1):
            scope = self._scopes[depth]
            if name in scope:
                if not scope[name]:
                    # `$` cannot stand in a Python name, so a renamed variable never meets a real one.
                    scope[name] = f"${depth}:{sum(1 for place in scope.values() if place)}"
                return scope[name]
        return name

    def _body(self, body: list[ast.stmt]) -> None:
        for place, statement in enumerate(body):
            if not (place == 0 and _is_docstring(statement)):
                self._node(statement)

    def _node(self, node: object) -> None:
        match node:
            case ast.expr() if not self._numbers and self._is_number(node):
                self.out.append("number")
            case ast.Name():
                self.out.append(f"name {self._name(node.id)}")
            case ast.Constant():
                self._constant(node.value)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._function(node)
            case ast.ClassDef():
                self._class(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node)
            case ast.AnnAssign():
                self._annotated(node)
            case ast.ExceptHandler():
                self.out.append(f"except {self._name(node.name) if node.name else ''}")
                self._node(node.type)
                self._fields(node, ("body",))
            case ast.AST():
                self.out.append(type(node).__name__)
                self._fields(node, node._fields)
                self.out.append(".")
            case list():
                self.out.append("[")
                for item in node:
                    self._node(item)
                self.out.append("]")
            case _:
                self.out.append(repr(node))

    def _fields(self, node: ast.AST, fields: tuple[str, ...]) -> None:
        for field in fields:
            if field not in ("ctx", "type_comment", "kind"):
                self._node(getattr(node, field))

    def _is_number(self, node: ast.AST) -> bool:
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int | float | complex) and not isinstance(value, bool)
            case ast.UnaryOp(operand=operand):
                return self._is_number(operand)
            case ast.BinOp(left=left, right=right):
                return self._is_number(left) and self._is_number(right)
            case _:
                return False

    def _constant(self, value: object) -> None:
        if isinstance(value, str) and _CPP_MARK.search(value):
            self.out.append(f"cpp {cpp_form(value)!r}")
        else:
            self.out.append(repr(value))

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.out.append("Assign")
            self._node([node.target])
            self._node(node.value)
            self.out.append(".")

    def _class(self, node: ast.ClassDef) -> None:
        # Names bound in a class body are attributes: they keep their names and are not seen from its methods.
        self.out.append(f"class {node.name}")
        self._node([*node.decorator_list, *node.bases, *node.keywords])
        self.out.append("[")
        self._body(node.body)
        self.out.append("]")

    def _function(self, node: _Function) -> None:
        arguments = node.args
        self.out.append(f"{type(node).__name__} {getattr(node, 'name', '')}")
        self._node([*getattr(node, "decorator_list", []), *arguments.defaults, *arguments.kw_defaults])
        names = [argument.arg for argument in _arguments(arguments)]
        body: list[ast.stmt] | list[ast.expr] = node.body if isinstance(node.body, list) else [node.body]
        bound, outer = _bindings(body)
        self._scopes.append(self._scope(bound.union(names) - outer))
        for name in names:
            self.out.append(self._name(name))
        shape = (len(arguments.posonlyargs), len(arguments.args), len(arguments.kwonlyargs))
        self.out.append(f"{shape} {arguments.vararg is not None} {arguments.kwarg is not None} [")
        if isinstance(node.body, list):
            self._body(node.body)
        else:
            self._node(node.body)
        self.out.append("]")
        self._scopes.pop()

    def _comprehension(self, node: _Comprehension) -> None:
        bound, _ = _bindings([part.target for part in node.generators])
        self._scopes.append(self._scope(bound))
        self.out.append(type(node).__name__)
        self._fields(node, ("generators", *(field for field in node._fields if field != "generators")))
        self.out.append(".")
        self._scopes.pop()


def _definitions(tree: ast.Module) -> ast.Module:
    inputs = ("get_inputs", "get_init_inputs")
    body: list[ast.stmt] = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.ClassDef)
        or (isinstance(statement, ast.FunctionDef) and statement.name not in inputs)
    ]
    has_class = any(isinstance(statement, ast.ClassDef) for statement in body)
    return ast.Module(body, []) if has_class else tree


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from arguments.posonlyargs
    yield from arguments.args
    if arguments.vararg:
        yield arguments.vararg
    yield from arguments.kwonlyargs
    if arguments.kwarg:
        yield arguments.kwarg


def _bindings(roots: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Names bound in this scope, and names declared global or nonlocal in it.

    What nested functions, classes and comprehensions bind is theirs, except for a walrus inside a comprehension.
    """
    bound: set[str] = set()
    outer: set[str] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        match node:
            case ast.Name():
                if not isinstance(node.ctx, ast.Load):
                    bound.add(node.id)
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                stack += [inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]
                continue
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.Global() | ast.Nonlocal():
                outer.update(node.names)
        # Faster than ast.iter_child_nodes, which is most of the time otherwise.
        for value in node.__dict__.values():
            if isinstance(value, ast.AST):
                stack.append(value)
            elif isinstance(value, list):
                stack += [item for item in value if isinstance(item, ast.AST)]
    return bound, outer
