"""The generation prompt, the chat frame around it, and how a kernel is read out of an answer.

The prompt has the structure of DICE's end-to-end prompt: task, freedom, one worked pair, the target architecture,
output rule. One function builds it for training, rollout and evaluation, so that the three can never differ.
"""

from __future__ import annotations

import ast
import re
from typing import Literal

from dice_core.model.tokenizer import IM_END, IM_START, CodeTokenizer

PromptForm = Literal["full", "short"]
PROMPT_FORMS: tuple[PromptForm, ...] = ("full", "short")

ENTRY_CLASS = "ModelNew"

_TASK = (
    "Rewrite the PyTorch module below so that it runs faster: put hand-written CUDA kernels in place of PyTorch "
    "operators wherever that pays."
)
_FREEDOM = (
    "Which operators you replace is up to you. You may replace all, some or one of them and keep the rest in PyTorch, "
    "fuse neighbours into one kernel (a matrix product with its activation, for example), or choose another "
    "algorithm that gives the same result (such as a softmax in one pass)."
)
_RULE = (
    f"Answer with one Python code block and nothing else. It defines `class {ENTRY_CLASS}` with the constructor and "
    "forward arguments of `Model`, compiles and runs as it stands, and holds no tests and no placeholders."
)
_EXAMPLE_MODULE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, left, right):
        return left + right


def get_inputs():
    return [torch.randn(8, 512), torch.randn(8, 512)]


def get_init_inputs():
    return []
"""
_EXAMPLE_KERNEL = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>

__global__ void sum_kernel(const float* left, const float* right, float* out, int64_t count) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < count) out[i] = left[i] + right[i];
}

torch::Tensor sum_pair(torch::Tensor left, torch::Tensor right) {
    auto out = torch::empty_like(left);
    const int64_t count = left.numel();
    const int threads = 256;
    const int64_t blocks = (count + threads - 1) / threads;
    sum_kernel<<<blocks, threads>>>(
        left.data_ptr<float>(), right.data_ptr<float>(), out.data_ptr<float>(), count);
    return out;
}
"""
cpp_source = "torch::Tensor sum_pair(torch::Tensor left, torch::Tensor right);"

extension = load_inline(
    name="sum_pair_extension", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["sum_pair"]
)


class ModelNew(nn.Module):
    def forward(self, left, right):
        return extension.sum_pair(left.contiguous(), right.contiguous())
'''

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)


def generation_prompt(pytorch_code: str, form: PromptForm = "full") -> str:
    """The user turn that asks for a kernel.

    Args:
        pytorch_code: source of the module to accelerate.
        form: `full` for real models; `short` (one line and the module) for models whose sequences must stay small.

    Raises:
        ValueError: unknown form.
    """
    target = f"```python\n{pytorch_code.strip()}\n```"
    if form == "short":
        return f"Write {ENTRY_CLASS} with custom kernels for:\n{target}"
    if form != "full":
        raise ValueError(f"unknown prompt form {form!r}; known: {', '.join(PROMPT_FORMS)}")
    return "\n\n".join(
        [
            f"{_TASK}\n{_FREEDOM}",
            f"For example, this module:\n```python\n{_EXAMPLE_MODULE}```",
            f"could become:\n```python\n{_EXAMPLE_KERNEL}```",
            f"The module to rewrite:\n{target}",
            _RULE,
        ]
    )


def kernel_response(kernel_code: str) -> str:
    """The answer that training teaches: the kernel in one Python fence."""
    return f"```python\n{kernel_code.strip()}\n```"


def chat_prompt_ids(tokenizer: CodeTokenizer, prompt: str) -> list[int]:
    """Token ids of one user turn and the assistant's header, in Qwen's chat template without a think block.

    Special tokens spelt inside `prompt` stay plain text.
    """
    return [
        *tokenizer.encode(f"{IM_START}user\n"),
        *tokenizer.encode_plain(prompt),
        *tokenizer.encode(f"{IM_END}\n{IM_START}assistant\n"),
    ]


def response_ids(tokenizer: CodeTokenizer, response: str) -> list[int]:
    """Token ids of an assistant turn: the response, its end mark and the template's line break."""
    return [*tokenizer.encode_plain(response), *tokenizer.encode(f"{IM_END}\n")]


def extract_kernel(text: str) -> str | None:
    """The kernel source in a model's answer.

    The first code fence that defines `ModelNew`; a fence cut off by the end of the text counts. Without such a
    fence, the whole text if it is Python that defines `ModelNew`.

    Returns:
        The source with one closing line break, or None.
    """
    for match in _FENCE.finditer(text):
        body = match.group(2)
        if re.search(rf"^class {ENTRY_CLASS}\b", body, re.MULTILINE):
            return body.strip("\n") + "\n"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if any(isinstance(node, ast.ClassDef) and node.name == ENTRY_CLASS for node in tree.body):
        return text.strip("\n") + "\n"
    return None
