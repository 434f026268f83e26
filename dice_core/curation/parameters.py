"""How many parameters a PyTorch module has, where its text alone can tell.

The arguments of `Model` come from `get_init_inputs`; sizes are followed through plain arithmetic, tuples and names.
Formulas are those of torch.nn's layers. Whatever is not understood (loops, unknown layers, computed sizes) makes the
answer None: no number is better than a wrong one.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dice_core.arena.static_python import Names, dotted
from dice_core.curation.normalise import parse

_PLAIN = """
    Identity Flatten Unflatten ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish GLU Sigmoid LogSigmoid Tanh Tanhshrink
    Softmax LogSoftmax Softmin Softplus Softshrink Softsign Hardtanh Hardswish Hardsigmoid Hardshrink Threshold Dropout
    Dropout1d Dropout2d Dropout3d AlphaDropout MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d
    AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d LPPool1d
    LPPool2d Upsample UpsamplingNearest2d UpsamplingBilinear2d PixelShuffle PixelUnshuffle Fold Unfold ZeroPad2d
    ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d ReflectionPad2d ReplicationPad1d ReplicationPad2d
    LocalResponseNorm CosineSimilarity PairwiseDistance MSELoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss NLLLoss
    KLDivLoss BCELoss BCEWithLogitsLoss HingeEmbeddingLoss TripletMarginLoss CosineEmbeddingLoss
"""
#: Layers without parameters.
_NO_PARAMETERS = frozenset(_PLAIN.split())
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod,
}
_CONV = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias")
_CONV_TRANSPOSE = (*_CONV[:5], "output_padding", "groups", "bias")
_NEW_TENSORS = frozenset({"randn", "rand", "zeros", "ones", "empty"})


class _Untold(Exception):
    """The text does not say."""


def parameter_count(source: str) -> int | None:
    """Elements of all parameters of `Model`, or None where its text does not tell (or is not Python)."""
    try:
        tree = parse(source)
        return _Model(tree).count()
    except (SyntaxError, _Untold, TypeError, ValueError, ArithmeticError, KeyError, IndexError, RecursionError):
        return None


class _Model:
    def __init__(self, tree: ast.Module) -> None:
        self.names = Names(ast.walk(tree))
        self.known: dict[str, Any] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._remember(node.targets[0], node.value)
        functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
        classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
        if "Model" not in classes or "get_init_inputs" not in functions:
            raise _Untold
        methods = {one.name: one for one in classes["Model"].body if isinstance(one, ast.FunctionDef)}
        self.init = methods.get("__init__")
        self.given = functions["get_init_inputs"].body

    def count(self) -> int:
        if self.init is None:
            return 0
        last = self.given[-1]
        if len(self.given) != 1 or not isinstance(last, ast.Return) or last.value is None:
            raise _Untold
        names = [one.arg for one in self.init.args.args[1:]]
        defaults = self.init.args.defaults
        bound = {name: self._value(value) for name, value in zip(names[len(names) - len(defaults):], defaults,
                                                                   strict=True)}
        bound |= dict(zip(names, self._value(last.value), strict=False))
        self.known |= bound
        return sum(self._statement(one) for one in self.init.body)

    def _statement(self, node: ast.stmt) -> int:
        match node:
            case ast.Assign(targets=[target], value=value):
                if dotted(target).startswith("self.") and (found := self._layer(value)) is not None:
                    return found
                self._remember(target, value)
                return 0
            case ast.Expr(value=ast.Constant() | ast.Call(func=ast.Attribute(attr="__init__"))) | ast.Pass():
                return 0
            case _:
                raise _Untold

    def _remember(self, target: ast.expr, value: ast.expr) -> None:
        try:
            if name := dotted(target):
                self.known[name] = self._value(value)
        except _Untold:
            self.known.pop(dotted(target), None)
            if any(isinstance(one, ast.Call) and not self._harmless(one) for one in ast.walk(value)):
                raise

    def _harmless(self, call: ast.Call) -> bool:
        """Whether a call makes a plain value or tensor, which is no parameter."""
        name = self.names.resolve(call.func)
        return name.startswith("torch.") and not name.startswith("torch.nn.")

    def _layer(self, node: ast.expr) -> int | None:
        """Parameters of a layer; None for a value that is no call of torch.nn."""
        name = self.names.resolve(node.func) if isinstance(node, ast.Call) else ""
        if not name.startswith("torch.nn.") or not isinstance(node, ast.Call):
            return None
        last = name.split(".")[-1]
        if last in _NO_PARAMETERS or name.startswith("torch.nn.functional."):
            return 0
        if last == "Sequential":
            layers = [self._layer(one) for one in node.args]
            if node.keywords or any(one is None for one in layers):
                raise _Untold
            return sum(one or 0 for one in layers)
        if last == "Parameter":
            return self._new_tensor(node.args[0])
        return self._weights(last, node)

    def _new_tensor(self, node: ast.expr) -> int:
        if not isinstance(node, ast.Call) or self.names.resolve(node.func).split(".")[-1] not in _NEW_TENSORS:
            raise _Untold
        shape = [self._value(one) for one in node.args]
        return _size(shape[0] if len(shape) == 1 else shape)

    def _weights(self, layer: str, node: ast.Call) -> int:
        def arguments(*order: str, **defaults: Any) -> dict[str, Any]:
            found = {**defaults, **dict(zip(order, map(self._value, node.args), strict=False))}
            return found | {str(one.arg): self._value(one.value) for one in node.keywords}

        if layer == "Linear":
            a = arguments("in_features", "out_features", "bias", bias=True)
            return int(a["out_features"] * (a["in_features"] + bool(a["bias"])))
        if layer in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"):
            order = _CONV_TRANSPOSE if "Transpose" in layer else _CONV
            a = arguments(*order, groups=1, bias=True)
            size, rank = a["kernel_size"], int(layer[-2])
            window = _size(size) if isinstance(size, tuple | list) and len(size) == rank else int(size) ** rank
            weight = a["in_channels"] * a["out_channels"] // a["groups"] * window
            return int(weight + a["out_channels"] * bool(a["bias"]))
        if layer == "Embedding":
            a = arguments("num_embeddings", "embedding_dim")
            return int(a["num_embeddings"] * a["embedding_dim"])
        if layer in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"):
            a = arguments("num_features", "eps", "momentum", "affine", affine=layer.startswith("Batch"))
            return int(2 * a["num_features"] * bool(a["affine"]))
        if layer == "GroupNorm":
            a = arguments("num_groups", "num_channels", "eps", "affine", affine=True)
            return int(2 * a["num_channels"] * bool(a["affine"]))
        if layer in ("LayerNorm", "RMSNorm"):
            a = arguments("normalized_shape", "eps", "elementwise_affine", "bias", elementwise_affine=True, bias=True)
            each = 1 + (layer == "LayerNorm" and bool(a["bias"]))
            return _size(a["normalized_shape"]) * each * bool(a["elementwise_affine"])
        if layer == "PReLU":
            return int(arguments("num_parameters", num_parameters=1)["num_parameters"])
        raise _Untold

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple() | ast.List():
                return [self._value(one) for one in node.elts]
            case ast.Name() | ast.Attribute() if (name := dotted(node)) in self.known:
                return self.known[name]
            case ast.UnaryOp(op=ast.USub()):
                return -self._value(node.operand)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return _ARITHMETIC[type(node.op)](self._value(node.left), self._value(node.right))
            case ast.Subscript():
                return self._value(node.value)[self._value(node.slice)]
        raise _Untold


def _size(shape: Any) -> int:
    return math.prod(int(one) for one in shape) if isinstance(shape, tuple | list) else int(shape)
