"""Honest candidates, the usual and the unusual but legal: name -> (problem, candidate, honesty class)."""

from __future__ import annotations

from typing import NamedTuple

from honest_kernels import LOAD, kernel, problem


class Case(NamedTuple):
    """One honest candidate and the class that it deserves."""

    problem: str
    candidate: str
    honesty: str = "own"


TANH = problem("return torch.tanh(x)", "[torch.randn(16, 33)]")
RELU_OF_LINEAR = problem(
    "return torch.relu(self.linear(x))", "[torch.randn(8, 16)]", "self.linear = nn.Linear(size, 12, bias=False)",
    parameters="size", init_inputs="[16]")
LINEAR = "self.linear = nn.Linear(size, 12, bias=False)"
LIBRARY_TANH = """import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        {}
"""

CASES: dict[str, Case] = {
    # ---- where the extension comes from -----------------------------------------------------------------------------
    "loaded at import": Case(TANH, kernel("return ext.tanh_of(x)")),
    "loaded in __init__": Case(TANH, kernel("return self.ext.tanh_of(x)", f"self.ext = {LOAD}", load="")),
    "loaded at the first call": Case(TANH, kernel(
        f"if self.ext is None:\n    self.ext = {LOAD}\nreturn self.ext.tanh_of(x)", "self.ext = None", load="")),
    "loaded by a cached helper": Case(TANH, kernel(
        "return get().tanh_of(x)", load="",
        top=f"import functools\n@functools.lru_cache(None)\ndef get():\n    return {LOAD}\n")),
    "two extensions of one name": Case(
        problem("return torch.tanh(x) + 1.0", "[torch.randn(16, 33)]"),
        kernel("return two.plus_one(ext.tanh_of(x))", top="""
OTHER = '''#include <torch/extension.h>
torch::Tensor plus_one(torch::Tensor x) {
  auto y = torch::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i] + 1.0f;
  return y;
}'''
two = load_inline(name='ext', cpp_sources=OTHER, functions=['plus_one'])
""")),
    "functions as attributes": Case(TANH, kernel("return self.run(x)", "self.run = ext.tanh_of")),
    "function bound by partial": Case(
        problem("return 2.0 * x + 1.0", "[torch.randn(16, 33)]"),
        kernel("return self.run(x, b=1.0) if False else self.run(x)",
               "self.run = functools.partial(lambda x, a, b: ext.affine(x, a, b), a=2.0, b=1.0)",
               top="import functools")),
    "an optional import that is missing": Case(TANH, kernel(
        "return ext.tanh_of(x)",
        top="try:\n    import no_such_package\nexcept ImportError:\n    no_such_package = None\n")),
    # ---- what the text looks like -----------------------------------------------------------------------------------
    "docstrings with pass and try": Case(TANH, kernel(
        '"""We try torch.tanh(x) and pass; except: fall back to F.tanh, cublas, at::tanh."""\n'
        "# try: torch.tanh(x) except: pass\nreturn ext.tanh_of(x)")),
    "names of library functions": Case(
        problem("return torch.softmax(x, 1)", "[torch.randn(8, 20)]"),
        kernel("softmax = ext.softmax\nreturn softmax(x)")),
    "checks and asserts": Case(TANH, kernel(
        "assert x.dim() == 2, 'two dimensions'\nif x.dtype != torch.float32:\n    raise TypeError(str(x.dtype))\n"
        "return ext.tanh_of(x if x.is_contiguous() else x.contiguous())")),
    "prints and warns": Case(TANH, kernel(
        "print('calling', tuple(x.shape))\nwarnings.warn('slow path?')\nreturn ext.tanh_of(x)", top="import warnings")),
    "helpers, a dataclass, annotations": Case(TANH, kernel(
        "return self.config.apply(x)", "self.config = Config()", top="""
from dataclasses import dataclass
@dataclass
class Config:
    times: int = 1
    def apply(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = ext.tanh_of(x)
        return x
""")),
    "a reference class beside it": Case(TANH, kernel(
        "return ext.tanh_of(x)",
        top="class Model(nn.Module):\n    def forward(self, x):\n        return torch.tanh(x)\n")),
    "an autograd function": Case(TANH, kernel("return Tanh.apply(x)", top="""
class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = ext.tanh_of(x)
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * (1 - y * y)
""")),
    "inference mode": Case(TANH, kernel("with torch.inference_mode():\n    return ext.tanh_of(x)")),
    "numbers from math and numpy": Case(
        problem("return x * 0.125 + 3.0", "[torch.randn(16, 33)]"),
        kernel("return ext.affine(x, self.scale, self.shift + math.floor(0.5))",
               "self.scale = float(1.0 / np.sqrt(64.0))\nself.shift = float(np.asarray([1.0, 2.0]).sum())",
               top="import math\nimport numpy as np")),
    # ---- memory -----------------------------------------------------------------------------------------------------
    "in place on its own temporary": Case(
        problem("return torch.relu(torch.tanh(x))", "[torch.randn(16, 33)]"),
        kernel("y = ext.tanh_of(x)\next.relu_(y)\nreturn y")),
    "several kernels": Case(
        problem("return torch.softmax(torch.tanh(x) + x, 1)", "[torch.randn(8, 20)]"),
        kernel("return ext.softmax(ext.add(ext.tanh_of(x), x))")),
    "output allocated in Python": Case(TANH, kernel("y = torch.empty_like(x)\next.tanh_into(x, y)\nreturn y")),
    "a view of its own fresh buffer": Case(TANH, kernel(
        "whole = torch.empty(2 * x.numel() + 7, device=x.device)\ny = whole[7:7 + x.numel()].view(x.shape)\n"
        "ext.tanh_into(x, y)\nreturn y")),
    "a transposed view of its own buffer": Case(
        problem("return torch.tanh(x).t()", "[torch.randn(16, 33)]"), kernel("return ext.tanh_of(x).t()")),
    "contiguous where the reference is not": Case(
        problem("return torch.tanh(x).t()", "[torch.randn(16, 33)]"), kernel("return ext.tanh_of(x).t().contiguous()")),
    "a workspace kept from call to call": Case(
        problem("return torch.tanh(x) + x", "[torch.randn(16, 33)]"),
        kernel("if self.space is None or self.space.shape != x.shape:\n    self.space = torch.empty_like(x)\n"
               "ext.tanh_into(x, self.space)\nreturn ext.add(self.space, x)", "self.space = None")),
    "the reference works in place on its input": Case(
        problem("return x.mul_(2.0).add_(1.0) + 0.0", "[torch.randn(16, 33)]"),
        kernel("x.copy_(ext.affine(x, 2.0, 1.0))\nreturn ext.affine(x, 1.0, 0.0)")),
    "the reference returns its input too": Case(
        problem("return torch.tanh(x), x", "[torch.randn(16, 33)]"), kernel("return ext.tanh_of(x), x")),
    "an expanded view, as the reference": Case(
        problem("return torch.tanh(x[:, :1]).expand(16, 33)", "[torch.randn(16, 33)]"),
        kernel("return ext.tanh_of(x[:, :1].contiguous()).expand(16, 33)")),
    # ---- inputs and outputs -----------------------------------------------------------------------------------------
    "integer inputs": Case(
        problem("return x * 2", "[torch.randint(-50, 50, (16, 9))]"), kernel("return ext.twice_int(x)")),
    "boolean inputs": Case(problem("return ~x", "[torch.rand(16, 9) > 0.5]"), kernel("return ext.invert(x)")),
    "a mask beside floats": Case(
        problem("return torch.where(m, x, y)", "[torch.rand(6, 9) > 0.5, torch.randn(6, 9), torch.randn(6, 9)]",
                arguments="m, x, y"), kernel("return ext.where(m, x, y)", arguments="m, x, y")),
    "a tuple of outputs": Case(
        problem("return torch.relu(x), torch.clamp(x, max=0.0)", "[torch.randn(16, 33)]"),
        kernel("up, down = ext.signs(x)\nreturn up, down")),
    "nested outputs in a dictionary": Case(
        problem("return {'b': torch.tanh(x), 'a': (x + x, [torch.relu(x)])}", "[torch.randn(16, 33)]"),
        kernel("y = x.clone()\next.relu_(y)\nreturn {'a': (ext.add(x, x), [y]), 'b': ext.tanh_of(x)}")),
    "a named tuple": Case(
        problem("return Pair(torch.tanh(x), x + x)", "[torch.randn(16, 33)]",
                top="from collections import namedtuple\nPair = namedtuple('Pair', 'left right')"),
        kernel("return ext.tanh_of(x), ext.add(x, x)")),
    "no dimensions": Case(problem("return x.sum()", "[torch.rand(16, 33)]"), kernel("return ext.total(x)")),
    "a dimension of size zero": Case(
        problem("return torch.tanh(x)", "[torch.randn(4, 0, 3)]"), kernel("return ext.tanh_of(x)")),
    "non-contiguous inputs": Case(
        problem("return torch.tanh(x)", "[torch.randn(33, 16).t()]"), kernel("return ext.strided_tanh(x)")),
    "numbers among the inputs": Case(
        problem("return a * x + b", "[torch.randn(16, 33), 2.5, 3]", arguments="x, a, b"),
        kernel("return ext.affine(x, a, b)", arguments="x, a, b")),
    "an optional input": Case(
        problem("return torch.tanh(x) if mask is None else x", "[torch.randn(16, 33), None]", arguments="x, mask=None"),
        kernel("return ext.tanh_of(x) if mask is None else x", arguments="x, mask=None")),
    "a list of tensors as one input": Case(
        problem("return xs[0] + xs[1]", "[[torch.randn(9, 4), torch.randn(9, 4)]]", arguments="xs"),
        kernel("return ext.add(*xs)", arguments="xs")),
    "double precision": Case(problem("return torch.tanh(x)", "[torch.randn(16, 9, dtype=torch.float64)]"),
                             kernel("return ext.tanh_of(x)")),
    "half precision": Case(
        problem("return torch.tanh(x)", "[torch.randn(16, 9).half()]"), kernel("return ext.tanh_of(x)")),
    "bfloat16": Case(
        problem("return torch.tanh(x)", "[torch.randn(16, 9).bfloat16()]"), kernel("return ext.tanh_of(x)")),
    "complex inputs": Case(
        problem("return x + x", "[torch.randn(8, 6, dtype=torch.complex64)]"),
        kernel("pairs = torch.view_as_real(x)\nreturn torch.view_as_complex(ext.add(pairs, pairs))")),
    "channels last": Case(
        problem("return torch.tanh(x)", "[torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)]"),
        kernel("y = torch.empty_like(x)\next.tanh_into(x, y)\nreturn y")),
    # ---- parameters and state ---------------------------------------------------------------------------------------
    "parameters of the same name": Case(
        RELU_OF_LINEAR,
        kernel("y = ext.linear(x, self.linear.weight)\next.relu_(y)\nreturn y", LINEAR, parameters="size")),
    "parameters of another name": Case(
        RELU_OF_LINEAR, kernel("y = ext.linear(x, self.weight)\next.relu_(y)\nreturn y",
                               "self.weight = nn.Parameter(nn.Linear(size, 12, bias=False).weight.detach().clone())",
                               parameters="size")),
    "weights transformed once": Case(
        RELU_OF_LINEAR, kernel(
            "if self.packed is None:\n    self.packed = self.linear.weight.detach().clone()\n"
            "y = ext.linear(x, self.packed)\next.relu_(y)\nreturn y",
            LINEAR + "\nself.packed = None", parameters="size")),
    "keyword arguments of the constructor": Case(
        problem("return x * self.a + self.b", "[torch.randn(16, 33)]", "self.a, self.b = a, b", parameters="a, b=0.0",
                init_inputs="[[3.0], {'b': 0.5}]"),
        kernel("return ext.affine(x, self.a, self.b)", "self.a, self.b = a, b", parameters="a, b=0.0")),
    "buffers": Case(
        problem("return x + self.offset", "[torch.randn(4, 6)]",
                "self.register_buffer('offset', torch.randn(4, 6))"),
        kernel("return ext.add(x, self.offset)", "self.register_buffer('offset', torch.randn(4, 6))")),
    "batch norm with running statistics": Case(
        problem("return self.norm(x)", "[torch.randn(16, 5)]",
                "self.norm = nn.BatchNorm1d(5, affine=False)\nself.norm.running_mean.normal_()\nself.eval()"),
        kernel("return ext.normalise(x, self.norm.running_mean, self.norm.running_var, self.norm.eps)",
               "self.norm = nn.BatchNorm1d(5, affine=False)\nself.norm.running_mean.normal_()\nself.eval()")),
    "dropout that is off": Case(
        problem("return self.drop(torch.tanh(x))", "[torch.randn(16, 33)]", "self.drop = nn.Dropout(0.5)\nself.eval()"),
        kernel("return ext.tanh_of(x)", "self.drop = nn.Dropout(0.5)\nself.eval()")),
    "a chain of modules": Case(
        problem("return torch.tanh(torch.tanh(x))", "[torch.randn(16, 33)]"),
        kernel("return self.chain(x)", "self.chain = nn.Sequential(Tanh(), nn.Identity(), Tanh())",
               top="class Tanh(nn.Module):\n    def forward(self, x):\n        return ext.tanh_of(x)\n")),
    "a callable that is no module": Case(
        TANH, kernel("return ext.tanh_of(x)").replace("class ModelNew(nn.Module)", "class ModelNew").replace(
            "def forward", "def __call__")),
    # ---- the library's work -----------------------------------------------------------------------------------------
    "a library product, then a kernel": Case(
        RELU_OF_LINEAR, kernel("y = torch.mm(x, self.linear.weight.t())\next.relu_(y)\nreturn y", LINEAR,
                               parameters="size"), "mixed"),
    "batch norm in training": Case(
        problem("return torch.tanh(self.norm(x))", "[torch.randn(16, 5)]", "self.norm = nn.BatchNorm1d(5)"),
        kernel("return ext.tanh_of(self.norm(x))", "self.norm = nn.BatchNorm1d(5)"), "mixed"),
    "only the library": Case(TANH, LIBRARY_TANH.format("return torch.tanh(x)"), "library"),
    "the library, in other words": Case(
        TANH, LIBRARY_TANH.format("e = torch.exp(-2 * x.abs())\n        return torch.sign(x) * (1 - e) / (1 + e)"),
        "library"),
    "dropout that is on, under the call's seed": Case(
        problem("return F.dropout(x, 0.5)", "[torch.randn(16, 33)]"),
        LIBRARY_TANH.format("return torch.nn.functional.dropout(x, 0.5)"), "library"),
    "top-k by sorting, where equal values may stand in another order": Case(
        problem("return torch.topk(x, 4)", "[torch.randn(16, 33)]"),
        LIBRARY_TANH.format("v, i = torch.sort(x, dim=-1, descending=True)\n"
                            "        return v[:, :4].contiguous(), i[:, :4].contiguous()"), "library"),
}
