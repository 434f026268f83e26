"""What a PyTorch module computes, read off its text: operators, how deep they are chained, layers, control flow.

`forward` is followed statement by statement with one fact for each value: how many operators lie behind it (nothing for
what is no tensor). Layers are looked up in `__init__`, classes and functions of the same file are followed into. Loops
are followed once and both sides of a branch are, so the counts are of the text, not of one run. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dice_core.arena.static_cpp import COMPUTE_OPS
from dice_core.arena.static_python import Names, dotted
from dice_core.curation.normalise import parse
from dice_core.errors import SourceError

_WORDS = """
    view view_as reshape flatten unflatten ravel transpose permute squeeze unsqueeze expand expand_as t T mT movedim
    swapaxes contiguous detach clone narrow select split chunk unbind tensor_split split_with_sizes to type type_as
    float double half bfloat16 int long bool cpu cuda size dim numel item tolist requires_grad_ get_device
    is_contiguous tensor as_tensor scalar_tensor zeros ones empty full zeros_like ones_like empty_like full_like
    new_zeros new_ones new_full new_empty arange linspace logspace eye rand randn randint rand_like randn_like randperm
    manual_seed no_grad is_tensor is_complex is_floating_point finfo iinfo device Size identity Identity Flatten
    Unflatten Module Parameter ModuleList ModuleDict view_as_complex view_as_real real broadcast_to
"""
#: Calls that compute nothing: views, types, new tensors, questions. Everything else of torch is an operator.
FREE = frozenset(_WORDS.split())
_METHOD_WORDS = """
    any all add max min norm round sort gather scatter scatter_ scatter_add scatter_add_ index_select index_add
    index_add_ masked_fill masked_fill_ masked_select where cumsum cumprod nonzero unique flip roll tril triu repeat
    repeat_interleave eq ne lt le gt ge logical_and logical_or logical_not isnan isinf clip clamp_ add_ mul_ sub_ div_
    addmm baddbmm std var trace diag diagonal tile take nan_to_num
"""
#: Methods of tensors that are operators, beside those that the honesty pass knows.
_METHODS = COMPUTE_OPS | set(_METHOD_WORDS.split())
_WEIGHTED_WORDS = """
    Linear LazyLinear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
    ConvTranspose3d MultiheadAttention RNN LSTM GRU RNNCell LSTMCell GRUCell Transformer TransformerEncoder
    TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer
"""
#: Layers that multiply by a weight; a look-up table is none.
WEIGHTED = frozenset(_WEIGHTED_WORDS.split())
#: Layers, and ways to make one, that are models of their own.
WHOLE = frozenset(one for one in WEIGHTED if one.startswith(("RNN", "LSTM", "GRU", "Transformer"))) | {
    "from_pretrained", "from_config",
}
_ENOUGH = 40  #: calls into the file's own functions and classes that are followed, one inside the other

_Function = ast.FunctionDef | ast.AsyncFunctionDef
Env = dict[str, int | None]


@dataclass(frozen=True)
class ModuleTraits:
    """What the text of a module says about its work."""

    operators: tuple[str, ...]  #: names in the order in which they are met, such as `relu`, `Conv2d`, `+`
    depth: int  #: operators on the longest chain from an input to a value
    weighted_layers: int  #: layers that multiply by a weight, as often as they are called
    whole_layers: int  #: recurrent and transformer layers among them
    loops: int
    branches: int


def module_traits(source: str) -> ModuleTraits:
    """Read a module in KernelBench's form.

    Raises:
        SourceError: not Python, nested too deeply, or without a class `Model` that has a `forward`.
    """
    try:
        tree = parse(source)
    except SyntaxError as error:
        raise SourceError(f"pytorch_code is not Python: {error}") from None
    file = _File(tree)
    model = file.classes.get("Model")
    if model is None or "forward" not in model.methods:
        raise SourceError("pytorch_code has no class Model with a forward")
    reader = _Reader(file)
    try:
        reader.function(model.methods["forward"], model, None)
    except RecursionError:
        raise SourceError("pytorch_code is nested too deeply to be read") from None
    return ModuleTraits(
        tuple(reader.operators), reader.depth, sum(one in WEIGHTED for one in reader.operators),
        sum(one in WHOLE for one in reader.operators), reader.loops, reader.branches)


class _Class:
    def __init__(self, node: ast.ClassDef) -> None:
        self.methods = {one.name: one for one in node.body if isinstance(one, _Function)}
        self.attributes: dict[str, ast.expr] = {}  # what an attribute was first set to
        self.lists: dict[str, list[ast.expr]] = {}  # what lists of any name hold, as far as it is written down
        self.makers: dict[str, ast.expr] = {}  # what methods and inner functions return
        for inner in ast.walk(node):
            match inner:
                case ast.Assign(value=ast.expr() as value) | ast.AnnAssign(value=ast.expr() as value):
                    for target in inner.targets if isinstance(inner, ast.Assign) else [inner.target]:
                        self._set(dotted(target), value)
                case ast.Call(func=ast.Attribute(attr="append" | "add_module" | "insert", value=held), args=[*_, last]):
                    self.lists.setdefault(dotted(held), []).append(last)
                case ast.FunctionDef(body=[*_, ast.Return(value=ast.expr() as value)]):
                    self.makers[inner.name] = value

    def _set(self, name: str, value: ast.expr) -> None:
        if name.startswith("self."):
            self.attributes.setdefault(name.removeprefix("self."), value)
        if isinstance(value, ast.List | ast.Tuple):
            self.lists[name] = [*value.elts, *self.lists.get(name, [])]
        elif isinstance(value, ast.ListComp):
            self.lists[name] = [value.elt, *self.lists.get(name, [])]

    def elements(self, made: ast.Call, name: str = "") -> list[ast.expr]:
        """The layers that a Sequential, ModuleList or ModuleDict is made of, as far as they are written down."""
        found = list(self.lists.get(name, []))
        for argument in made.args:
            value = argument.value if isinstance(argument, ast.Starred) else argument
            match value:
                case ast.List() | ast.Tuple():
                    found += value.elts
                case ast.ListComp() | ast.GeneratorExp():
                    found.append(value.elt)
                case ast.Dict():
                    found += value.values
                case ast.Call() if dotted(value.func).endswith("OrderedDict"):
                    pairs = [pair for one in value.args if isinstance(one, ast.List) for pair in one.elts]
                    found += [pair.elts[1] for pair in pairs if isinstance(pair, ast.Tuple) and len(pair.elts) == 2]
                case ast.Name() if value.id in self.lists:
                    found += self.lists[value.id]
                case _:
                    found.append(value)
        return found


class _File:
    def __init__(self, tree: ast.Module) -> None:
        self.names = Names(ast.walk(tree))
        self.classes = {one.name: _Class(one) for one in tree.body if isinstance(one, ast.ClassDef)}
        self.functions = {one.name: one for one in tree.body if isinstance(one, _Function)}


class _Reader:
    def __init__(self, file: _File) -> None:
        self.file = file
        self.operators: list[str] = []
        self.depth = self.loops = self.branches = 0
        self._inside: list[str] = []

    def function(self, node: _Function, owner: _Class | None, arguments: Sequence[int | None] | None) -> int | None:
        """Follow one function; without `arguments` every parameter but `self` is an input. Returns what it returns."""
        if (node.name in self._inside[-_ENOUGH:] and self._inside.count(node.name) > 3) or len(self._inside) > _ENOUGH:
            return self._operator(node.name, arguments or ())
        names = [one.arg for one in (*node.args.posonlyargs, *node.args.args) if one.arg != "self"]
        names += [one.arg for one in (node.args.vararg, node.args.kwarg) if one]
        env: Env = dict.fromkeys(names, 0)
        if arguments is not None:
            env = dict.fromkeys(names) | dict(zip(names, arguments, strict=False))
        self._inside.append(node.name)
        result = _Body(self, env, owner).statements(node.body)
        self._inside.pop()
        return result

    def _operator(self, name: str, arguments: Iterable[int | None]) -> int:
        self.operators.append(name)
        deep = 1 + max((one for one in arguments if one is not None), default=0)
        self.depth = max(self.depth, deep)
        return deep

    def called_layer(self, value: ast.expr, owner: _Class | None, arguments: Sequence[int | None]) -> int | None:
        """Follow a call of something that was made earlier: a layer, a class of this file, a function's name."""
        made = value.func if isinstance(value, ast.Call) else value
        name = self.file.names.resolve(made)
        last = name.split(".")[-1]
        if isinstance(value, ast.Call) and name in self.file.classes:
            inner = self.file.classes[name]
            return self.function(inner.methods["forward"], inner, arguments) if "forward" in inner.methods else None
        if isinstance(value, ast.Call) and owner and last in ("Sequential", "ModuleList", "ModuleDict"):
            deep = _deepest(arguments)
            for layer in owner.elements(value):
                deep = self.called_layer(layer, owner, [deep])
            return deep
        if isinstance(value, ast.Call) and owner and last in owner.makers and name in (last, f"self.{last}"):
            self._inside.append(last)
            deep = (self.called_layer(owner.makers[last], owner, arguments) if len(self._inside) < _ENOUGH
                    else self._operator(last, arguments))
            self._inside.pop()
            return deep
        if last in FREE or (isinstance(value, ast.Call) and last.startswith(("Dropout", "AlphaDropout"))):
            return _deepest(arguments)
        return self._operator(last or "call", arguments)


class _Body:
    """The statements of one function over what is known of its names."""

    def __init__(self, reader: _Reader, env: Env, owner: _Class | None) -> None:
        self.reader = reader
        self.env = env
        self.owner = owner
        self.layers: dict[str, ast.expr] = {}  # local names of layers

    def statements(self, body: Sequence[ast.stmt]) -> int | None:
        result: int | None = None
        for statement in body:
            found = self._statement(statement)
            if found is not None:
                result = max(found, result or 0)
        return result

    def _statement(self, node: ast.stmt) -> int | None:
        match node:
            case ast.Return(value=value):
                return self.value(value) if value else None
            case ast.Assign(targets=targets, value=value):
                if self._makes_layer(value) and isinstance(targets[0], ast.Name):
                    self.layers[targets[0].id] = value
                else:
                    found = self.value(value)
                    for target in targets:
                        self._bind(target, found)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._bind(target, self.value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self._bind(target, self._arithmetic(_sign(op), [self.value(target), self.value(value)]))
            case ast.For() | ast.AsyncFor():
                self.reader.loops += 1
                self._loop_layers(node)
                self._bind(node.target, self.value(node.iter))
                return self.statements([*node.body, *node.orelse])
            case ast.While():
                self.reader.loops += 1
                self.value(node.test)
                return self.statements([*node.body, *node.orelse])
            case ast.If():
                self.reader.branches += 1
                self.value(node.test)
                return self.statements([*node.body, *node.orelse])
            case ast.With() | ast.Try():
                return self.statements(node.body)
            case ast.Expr(value=value):
                self.value(value)
        return None

    def _bind(self, target: ast.expr, deep: int | None) -> None:
        for inner in ast.walk(target):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                self.env[inner.id] = deep

    def _makes_layer(self, value: ast.expr) -> bool:
        name = self.reader.file.names.resolve(value.func) if isinstance(value, ast.Call) else ""
        layer = name.startswith("torch.nn.") and not name.startswith("torch.nn.functional.")
        return name in self.reader.file.classes or (layer and name.split(".")[-1][:1].isupper())

    def _loop_layers(self, node: ast.For | ast.AsyncFor) -> None:
        """`for layer in self.layers`: the loop's name is the list's first layer."""
        held = next((dotted(one) for one in ast.walk(node.iter) if dotted(one).startswith("self.")), "")
        attribute = held.removeprefix("self.").split(".")[0]
        value = self.owner.attributes.get(attribute) if self.owner and attribute else None
        if isinstance(value, ast.Call) and self.owner:
            layers = self.owner.elements(value, f"self.{attribute}")
            names = [one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)]
            self.layers.update({name: layers[0] for name in names if layers})

    def value(self, node: ast.expr | None) -> int | None:
        """Operators behind a value; None when it is no tensor."""
        match node:
            case None | ast.Constant() | ast.Lambda() | ast.JoinedStr():
                return None
            case ast.Name():
                return self.env.get(node.id)
            case ast.Attribute():
                return self._attribute(node)
            case ast.BinOp():
                return self._arithmetic(_sign(node.op), [self.value(node.left), self.value(node.right)])
            case ast.UnaryOp():
                return self._arithmetic(_sign(node.op), [self.value(node.operand)])
            case ast.Compare():
                found = [self.value(node.left), *(self.value(one) for one in node.comparators)]
                same = any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
                return None if same else self._arithmetic(_sign(node.ops[0]), found)
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                self.value(node.slice)
                return self.value(node.value)
            case ast.IfExp():
                self.reader.branches += 1
                self.value(node.test)
                return _deepest([self.value(node.body), self.value(node.orelse)])
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                for one in node.generators:
                    self._bind(one.target, self.value(one.iter))
                return self.value(node.value if isinstance(node, ast.DictComp) else node.elt)
            case ast.NamedExpr():
                self._bind(node.target, self.value(node.value))
                return self.value(node.target)
            case _:
                return _deepest([self.value(one) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)])

    def _attribute(self, node: ast.Attribute) -> int | None:
        if dotted(node.value) == "self":
            made = self.owner.attributes.get(node.attr) if self.owner else None
            last = self.reader.file.names.resolve(made.func).split(".")[-1] if isinstance(made, ast.Call) else ""
            return 0 if last in FREE - {"ModuleList", "ModuleDict", "Size", "device"} else None
        held = self.value(node.value)
        if dotted(node.value).startswith("self.") and node.attr in ("weight", "bias"):
            return 0
        return held if node.attr in ("T", "mT", "H", "mH", "data", "real", "imag", "values", "indices") else None

    def _arithmetic(self, sign: str, operands: Sequence[int | None]) -> int | None:
        if all(one is None for one in operands):
            return None
        return self.reader._operator(sign, operands)

    def _call(self, node: ast.Call) -> int | None:
        given = [self.value(one) for one in node.args] + [self.value(one.value) for one in node.keywords]
        file = self.reader.file
        name = file.names.resolve(node.func)
        last = name.split(".")[-1]
        if name.startswith("torch.") and not self._makes_layer(node):
            if last in FREE:
                return _deepest(given) if _deepest(given) is not None else 0
            return self.reader._operator(last, given) if _deepest(given) is not None else None
        if isinstance(node.func, ast.Call):
            return self.reader.called_layer(node.func, self.owner, given)
        if name in self.layers:
            return self.reader.called_layer(self.layers[name], self.owner, given)
        if name in file.functions:
            return self.reader.function(file.functions[name], None, given)
        if name.startswith("self.") and self.owner and name.count(".") == 1:
            if last in self.owner.methods:
                return self.reader.function(self.owner.methods[last], self.owner, given)
            if last in self.owner.attributes:
                return self.reader.called_layer(self.owner.attributes[last], self.owner, given)
            return self.reader._operator(last, given)
        if isinstance(node.func, ast.Subscript):
            held = dotted(node.func.value).removeprefix("self.")
            made = self.owner.attributes.get(held) if self.owner else None
            layers = self.owner.elements(made, f"self.{held}") if self.owner and isinstance(made, ast.Call) else []
            return self.reader.called_layer(layers[0], self.owner, given) if layers else _deepest(given)
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            if owner is None:
                return _deepest(given)
            return self.reader._operator(node.func.attr, [owner, *given]) if node.func.attr in _METHODS else owner
        return _deepest(given) if last in ("tuple", "list", "zip", "enumerate", "reversed", "sum", "map") else None


def _deepest(values: Iterable[int | None]) -> int | None:
    return max((one for one in values if one is not None), default=None)


_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**", ast.Mod: "%",
    ast.FloorDiv: "//", ast.USub: "-", ast.Invert: "~", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}


def _sign(op: ast.AST) -> str:
    return _SIGNS.get(type(op), type(op).__name__)
