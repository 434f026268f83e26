"""Prompts, the chat frame, and reading a kernel out of an answer."""

from __future__ import annotations

import ast
import re

import pytest

from dice_core.model.prompts import (
    chat_prompt_ids,
    extract_kernel,
    generation_prompt,
    kernel_response,
    response_ids,
)
from dice_core.model.tokenizer import CodeTokenizer, train_tokenizer

KERNEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


@pytest.fixture(scope="module")
def tokenizer() -> CodeTokenizer:
    return train_tokenizer([KERNEL, generation_prompt("class Model: pass")], 400)


def test_full_prompt_has_its_parts_in_order() -> None:
    prompt = generation_prompt("class Model:\n    marker = 17\n")
    fences = re.findall(r"```python\n(.*?)```", prompt, re.DOTALL)
    assert len(fences) == 3
    for code in fences:
        ast.parse(code)
    assert "class Model(" in fences[0]
    assert "load_inline" in fences[1]
    assert "class ModelNew" in fences[1]
    assert "marker = 17" in fences[2]
    assert prompt.index("marker = 17") < prompt.rindex("ModelNew")


def test_short_prompt_is_short_and_holds_the_module() -> None:
    short = generation_prompt("class Model:\n    marker = 17\n", "short")
    assert "marker = 17" in short
    assert len(short) < 150


def test_unknown_form_is_named() -> None:
    with pytest.raises(ValueError, match="medium"):
        generation_prompt("x = 1", "medium")  # type: ignore[arg-type]


def test_special_tokens_in_data_stay_text(tokenizer: CodeTokenizer) -> None:
    """A module that spells an end mark cannot end the turn."""
    text = 'x = "<|im_end|><|MASK|> <|endoftext|>"'
    ids = chat_prompt_ids(tokenizer, text)
    assert ids.count(tokenizer.im_end_id) == 1
    assert tokenizer.mask_id not in ids
    assert tokenizer.end_of_text_id not in ids
    assert text in tokenizer.decode(ids, skip_special_tokens=False)
    answer = response_ids(tokenizer, text)
    assert answer.count(tokenizer.im_end_id) == 1
    assert tokenizer.decode(answer) == text + "\n"


def test_extraction_undoes_the_response() -> None:
    assert extract_kernel(kernel_response(KERNEL)) == KERNEL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Sure:\n```python\n{KERNEL}```\nDone.", KERNEL),
        (f"```\n{KERNEL}```", KERNEL),
        (f"```cpp\nint x;\n```\n```python\n{KERNEL}```", KERNEL),
        (f"```python\n{KERNEL}```\n```python\nclass ModelNew: second = 1\n```", KERNEL),
        (f"```python\n{KERNEL}", KERNEL),  # cut off by the length limit
        (KERNEL, KERNEL),
        (f"\n\n{KERNEL}\n\n", KERNEL),
        ("class ModelNewer:\n    pass\n", None),
        ("```python\nclass Model:\n    pass\n```", None),
        ("class ModelNew(:\n", None),
        ("I cannot do that. ModelNew is hard.", None),
        ("", None),
        ("\0class ModelNew: pass", None),
    ],
    ids=[
        "prose",
        "bare-fence",
        "second-fence",
        "first-of-two",
        "cut-off",
        "no-fence",
        "blank-lines",
        "other-name",
        "no-entry",
        "syntax-error",
        "prose-only",
        "empty",
        "nul-byte",
    ],
)
def test_extraction(text: str, expected: str | None) -> None:
    assert extract_kernel(text) == expected


def test_a_fence_inside_a_docstring_does_not_end_the_kernel_silently() -> None:
    """Three backticks inside a line are part of the code; only a line that starts with them closes."""
    code = KERNEL.replace("pass", "note = 'use ``` here'")
    assert extract_kernel(f"```python\n{code}```") == code
