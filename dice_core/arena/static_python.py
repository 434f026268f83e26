"""Reading a candidate's Python: names resolved through imports, where its kernel flows, what calls it.

The analysis is by name and flow-insensitive: an attribute `ext` that holds an extension anywhere holds it everywhere.
That errs towards believing that a kernel is used, so an honest candidate is not accused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from dice_core.arena.static_cpp import COMPUTE_METHODS, COMPUTE_OPS
from dice_core.arena.static_tree import SyntaxTree, children

_LOADERS = frozenset({"load_inline", "load"})
_RAW_CUDA = frozenset(
    {"RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel", "SourceModule", "_compile_kernel"}
)
_TRITON_JIT = frozenset({"triton.jit", "jit", "triton.autotune"})
#: Layers of torch.nn that compute; containers, parameters and identity do not.
_NOT_LAYERS = frozenset(
    {"Parameter", "ParameterList", "ParameterDict", "Module", "ModuleList", "ModuleDict", "Identity", "Flatten",
     "Unflatten", "init", "Buffer", "UninitializedParameter"}
)  # fmt: skip
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)  # isinstance is three times as fast with a tuple


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of names and attributes, "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


class Names:
    """What the names of a file mean after its imports, given all its nodes."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._meaning: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        self._meaning[alias.asname] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    self._meaning[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def resolve(self, node: ast.AST) -> str:
        """The full dotted name of an expression, through import aliases; "" when it is no plain name."""
        name = dotted(node)
        if not name:
            return ""
        head, _, rest = name.partition(".")
        head = self._meaning.get(head, head)
        return f"{head}.{rest}" if rest else head


def is_torch_compute(node: ast.AST, names: Names, layers: set[str]) -> str | None:
    """What torch computes at this node, or None: a functional call, an operator call, a layer call, `@`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return "@"
    if not isinstance(node, ast.Call):
        return None
    name = names.resolve(node.func)
    head, last = name.split(".")[0], name.split(".")[-1]
    if name.startswith("torch.nn.functional."):
        return None if last == "pad" else name
    if head == "torch":
        is_op = last in COMPUTE_OPS and not name.startswith(("torch.nn.", "torch.cuda.", "torch.autograd."))
        return name if is_op else None
    if isinstance(node.func, ast.Attribute):
        owner = dotted(node.func.value)
        if owner == "self" and node.func.attr in layers:
            return f"self.{node.func.attr}(…), a torch.nn layer"
        if node.func.attr in COMPUTE_METHODS and head not in ("math", "np", "numpy", "tl", "triton", "F"):
            return f".{node.func.attr}(…)"
    if isinstance(node.func, ast.Call) and names.resolve(node.func.func).startswith("torch.nn."):
        inner = names.resolve(node.func.func).split(".")[-1]
        return None if inner in _NOT_LAYERS else f"nn.{inner}(…)(…)"
    return None


def torch_layers(tree: SyntaxTree, names: Names) -> set[str]:
    """Attributes that hold a torch.nn layer (`self.conv = nn.Conv2d(…)`), alone or in nn.Sequential."""
    found: set[str] = set()
    for node in tree.nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        name = names.resolve(node.value.func)
        if not name.startswith("torch.nn.") or name.startswith("torch.nn.functional"):
            continue
        if name.split(".")[-1] in _NOT_LAYERS or name.startswith("torch.nn.init"):
            continue
        if name == "torch.nn.Sequential" and not _chains_layers(node.value, tree, names):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and dotted(target.value) == "self":
                found.add(target.attr)
    return found


def _chains_layers(sequential: ast.Call, tree: SyntaxTree, names: Names) -> bool:
    """Whether a nn.Sequential holds layers of torch's: by its arguments, or anywhere where these are computed."""
    listed = all(isinstance(argument, ast.Call) for argument in sequential.args)
    inner = (node for root in (sequential.args if listed else [tree.root]) for node in tree.within(root))
    for node in inner:
        name = names.resolve(node.func) if isinstance(node, ast.Call) else ""
        last = name.split(".")[-1]
        plain = name.startswith(("torch.nn.functional", "torch.nn.init")) or last in (*_NOT_LAYERS, "Sequential")
        if name.startswith("torch.nn.") and not plain:
            return True
    return False


class KernelUse:
    """Where a candidate builds its kernels and which code reached from ModelNew calls them."""

    def __init__(self, tree: SyntaxTree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._definitions: dict[str, list[_Definition]] = {}
        for node in tree.nodes:
            if isinstance(node, _DEFINITIONS):
                self._definitions.setdefault(node.name, []).append(node)
        # The last definition is the one that counts when the file has been executed.
        named = [node for node in tree.root.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
        self.candidate: ast.ClassDef | None = named[-1] if named else None
        calls = [node for node in tree.nodes if isinstance(node, ast.Call)]
        self.extension_loads = [node for node in calls if self._is_load(node)]
        self.has_raw_cuda = any(self._is_raw_cuda(node) for node in calls)
        self.triton_kernels = {
            node.name
            for nodes in self._definitions.values()
            for node in nodes
            if isinstance(node, _FunctionNode) and any(self._is_jit(decorator) for decorator in node.decorator_list)
        }
        self._holders: set[str] = set()
        self._find_holders()

    @property
    def has_kernel(self) -> bool:
        """Whether anything of its own is compiled at all."""
        return bool(self.extension_loads or self.triton_kernels or self.has_raw_cuda)

    # ---- where kernels come from ------------------------------------------------------------------------------------

    def _is_load(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = self._names.resolve(node.func)
        last = name.split(".")[-1]
        if last not in _LOADERS:
            return False
        # A bare `load` must come from cpp_extension; torch.load, json.load and the like do not count.
        return last == "load_inline" or "cpp_extension" in name

    def _is_raw_cuda(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self._names.resolve(node.func).split(".")[-1] in _RAW_CUDA

    def _is_jit(self, decorator: ast.AST) -> bool:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = self._names.resolve(target)
        return name in _TRITON_JIT or name.endswith("triton.jit")

    def is_build(self, node: ast.AST) -> bool:
        """Whether the node compiles a kernel."""
        return self._is_load(node) or self._is_raw_cuda(node)

    def is_extension(self, node: ast.AST) -> bool:
        """Whether the expression is, or comes from, a built kernel or a module that holds one."""
        if isinstance(node, ast.Name):
            return node.id in self._holders or node.id in self.triton_kernels
        if isinstance(node, ast.Attribute):
            return node.attr in self._holders or self.is_extension(node.value)
        if isinstance(node, ast.Subscript):
            return self.is_extension(node.value)
        if isinstance(node, ast.Call):
            return self.is_build(node) or self.is_extension(node.func) or self._wraps(node)
        if isinstance(node, ast.IfExp):
            return self.is_extension(node.body) or self.is_extension(node.orelse)
        if isinstance(node, ast.BoolOp):
            return any(self.is_extension(value) for value in node.values)
        if isinstance(node, ast.NamedExpr | ast.Await):
            return self.is_extension(node.value)
        return False

    def _wraps(self, node: ast.Call) -> bool:
        """`getattr(ext, name)`, `functools.partial(ext.fn, …)`, `torch.jit.ignore(ext.fn)`."""
        name = self._names.resolve(node.func).split(".")[-1]
        return name in ("getattr", "partial", "staticmethod", "disable", "allow_in_graph") and any(
            self.is_extension(argument) for argument in node.args[:1]
        )

    def _find_holders(self) -> None:
        """Names and attributes that ever hold a kernel, and functions that return one; grown to a fixed point."""
        kinds = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Return)
        nodes = [node for node in self._tree.nodes if isinstance(node, kinds)]
        while True:
            size = len(self._holders)
            for node in nodes:
                if isinstance(node, ast.Assign) and self.is_extension(node.value) and not self._is_result(node.value):
                    for target in node.targets:
                        self._hold(target)
                elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    if self.is_extension(node.value) and not self._is_result(node.value):
                        self._hold(node.target)
                elif isinstance(node, ast.Return) and node.value is not None and self.is_extension(node.value):
                    function = self._enclosing_function(node)
                    if function is not None and not self._is_result(node.value):
                        self._holders.add(function.name)
            if len(self._holders) == size:
                return

    def _is_result(self, node: ast.AST) -> bool:
        """Whether the expression is the outcome of calling a kernel (a tensor), not the kernel."""
        return self.is_kernel_call(node)

    def _hold(self, target: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self._holders.add(target.id)
        elif isinstance(target, ast.Attribute):
            self._holders.add(target.attr)
        elif isinstance(target, ast.Subscript):
            self._hold(target.value)

    def _enclosing_function(self, node: ast.AST) -> _FunctionNode | None:
        current = self._tree.parent(node)
        while current is not None and not isinstance(current, _FunctionNode):
            current = self._tree.parent(current)
        return current

    def is_kernel_call(self, node: ast.AST) -> bool:
        """Whether the node runs a kernel: `ext.fn(…)`, `fn(…)` with fn taken from one, `kernel[grid](…)`."""
        if not isinstance(node, ast.Call) or self.is_build(node) or self._wraps(node):
            return False
        function = node.func
        if isinstance(function, ast.Subscript):
            return self.is_extension(function.value)
        if isinstance(function, ast.Attribute):
            if function.attr in ("get_function", "warmup", "cache_clear"):
                return False
            return self.is_extension(function.value) or (
                function.attr in self._holders and not self._is_builder(function.attr)
            )
        if isinstance(function, ast.Name):
            return function.id in self._holders and not self._is_builder(function.id)
        # `build().fn(…)` is an Attribute; what is left is a call of a call: `make()(…)`.
        return isinstance(function, ast.Call) and self.is_extension(function)

    def _is_builder(self, name: str) -> bool:
        """A function of the file that returns an extension is a way to get it, not a kernel."""
        return any(isinstance(node, _FunctionNode) for node in self._definitions.get(name, ()))

    # ---- what is reached ---------------------------------------------------------------------------------------------

    @cached_property
    def _reached(self) -> list[ast.AST]:
        """Bodies reached from ModelNew: its methods but __init__, and whatever these and __init__ name."""
        if self.candidate is None:
            return []
        bodies: list[ast.AST] = []
        pending: list[_Definition] = [self.candidate]
        seen: set[int] = set()
        while pending:
            definition = pending.pop()
            if id(definition) in seen:
                continue
            seen.add(id(definition))
            bodies.append(definition)
            for node in self._tree.within(definition):
                if isinstance(node, (ast.Name, ast.Attribute)):
                    name = node.id if isinstance(node, ast.Name) else node.attr
                    pending += self._definitions.get(name, ())
        return bodies

    def reachable_nodes(self) -> Iterator[ast.AST]:
        """Every node of the code reached from ModelNew, each once, and module-level statements."""
        yield from _walk_once([*self._reached, *_module_level(self._tree.root)])

    def forward_nodes(self) -> Iterator[ast.AST]:
        """Nodes that may run in a forward call: reached code without __init__, backward and kernel builders.

        Functions that __init__ defines are kept: a forward call may run them.
        """
        kept = [
            inner for definition in self._reached for node in self._tree.within(definition)
            if isinstance(node, ast.FunctionDef) and node.name == "__init__"
            for inner in self._tree.within(node)
            if isinstance(inner, (ast.Lambda, ast.FunctionDef)) and inner is not node
        ]
        skip = ("__init__", "backward", "setup_context", *self.triton_kernels)
        yield from _walk_once([*self._reached, *kept], skip=skip)

    @cached_property
    def calls(self) -> list[ast.AST]:
        """Kernel calls that a forward call can reach."""
        return [node for node in self.forward_nodes() if self.is_kernel_call(node)]

    @cached_property
    def availability_names(self) -> set[str]:
        """Flags such as HAS_EXT that are set beside the building of a kernel, in a try."""
        found: set[str] = set()
        for node in self._tree.nodes:
            if not isinstance(node, ast.Try) or not any(self.is_build(part) for part in self._tree.within(node)):
                continue
            for part in self._tree.within(node):
                if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant):
                    for target in part.targets:
                        if isinstance(target, ast.Name):
                            found.add(target.id)
                        elif isinstance(target, ast.Attribute):
                            found.add(target.attr)
        return found

    def statements_after(self, node: ast.AST) -> list[ast.AST]:
        """What runs when an `if` that returns is not taken: the statements that follow it."""
        parent = self._tree.parent(node)
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(parent, block, None)
            if isinstance(statements, list) and node in statements:
                ends = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Raise)
                return list(statements[statements.index(node) + 1 :]) if ends else []
        return []

    def expand(self, nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
        """The nodes and everything in the file's own functions that they call."""
        pending = list(nodes)
        seen: set[int] = set()
        while pending:
            for node in self._tree.within(pending.pop()):
                yield node
                if isinstance(node, ast.Call):
                    name = dotted(node.func).split(".")[-1]
                    for definition in self._definitions.get(name, ()):
                        if id(definition) not in seen:
                            seen.add(id(definition))
                            pending.append(definition)


def _module_level(tree: ast.Module) -> list[ast.AST]:
    return [node for node in tree.body if not isinstance(node, _Definition)]


def _walk_once(roots: Iterable[ast.AST], skip: tuple[str, ...] = ()) -> Iterator[ast.AST]:
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if id(node) in seen or (isinstance(node, _FunctionNode) and node.name in skip):
            continue
        seen.add(id(node))
        yield node
        pending += children(node)
