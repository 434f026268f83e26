from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_core.curation.infilling import Infilling, Reason, Uncut, count_reasons, cut

BODY = "__global__ void k(float* x) { x[0] = 1.f; }\ntorch::Tensor run(torch::Tensor x) { return x; }\n"
HEAD = "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
CALL = 'ext = load_inline(name="e", cpp_sources={cpp}, cuda_sources={cuda}, functions=["run"])\n'
MODEL = "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return ext.run(x)\n"
DECLARED = '"torch::Tensor run(torch::Tensor x);"'


def infilling(source: str) -> Infilling:
    found = cut(source)
    assert isinstance(found, Infilling), found
    assert found.prefix + found.middle + found.suffix == source
    return found


def refused(source: str) -> Uncut:
    found = cut(source)
    assert isinstance(found, Uncut), found
    return found


def test_the_real_items_are_cut_where_dice_cut_them(real_data: Path) -> None:
    items = json.loads((real_data / "dice" / "kernel_infilling_66.json").read_text(encoding="utf-8"))
    found = [infilling(item["cuda_code"]) for item in items]
    cuts = [(one.prefix, one.middle, one.suffix) for one in found]
    assert cuts == [(item["prefix"], item["middle"], item["suffix"]) for item in items]
    assert len(items) == 66


def test_the_samples_kernels_are_cut(root: Path) -> None:
    rows = [json.loads(line) for line in (root / "datasets/samples/concur_cuda.jsonl").read_text().splitlines()]
    results = [cut(row["generated_code"] or "") for row in rows]
    assert count_reasons(results) == {"cut": 56, "no_kernel": 4}


QUOTES = ('"""', "'''")
TEXT = st.text(alphabet=st.sampled_from('ab {}();/*é漢🙂\t\f\r\n#\u2028\x85\x0b=<>"'), max_size=40)
LINE_END = st.sampled_from(["\n", "\r\n", "\r"])


@given(comment=TEXT, before=TEXT, after=TEXT, quotes=st.sampled_from(QUOTES), raw=st.booleans(), end=LINE_END,
       spell=st.sampled_from(["source = {}", "source: str = {}", "source = ({})", "a = source = {}", "source = '' {}"]),
       mark=st.booleans())
@settings(deadline=None, max_examples=300)
def test_any_text_is_cut_byte_exactly(
    comment: str, before: str, after: str, quotes: str, raw: bool, end: str, spell: str, mark: bool
) -> None:
    code = f"{BODY}{before}{after}".replace(quotes, "").replace("\\", "") + "\n"
    if raw:
        quotes, closing = f"r{quotes}", quotes
    else:
        closing = quotes
    middle = spell.format(f"{quotes}{code}{closing}")
    remark = comment.replace("\r", " ").replace("\n", " ")
    prefix = f"{HEAD}\f# {remark}\nμ = 'é漢'; "
    suffix = f"  # {remark}\n\f\n{CALL.format(cpp=DECLARED, cuda='source')}{MODEL}"
    prefix, suffix = (part.replace("\n", end) for part in (prefix, suffix))
    source = ("\ufeff" if mark else "") + prefix + middle + suffix
    ast.parse(source.removeprefix("\ufeff"))
    found = infilling(source)
    assert found.middle == middle
    assert found.pieces == 1


@given(source=st.text(max_size=200))
@settings(deadline=None)
def test_no_text_at_all_breaks_it(source: str) -> None:
    found = cut(source)
    assert isinstance(found, Uncut) or found.prefix + found.middle + found.suffix == source


def test_several_sources_make_one_middle_when_only_strings_lie_between() -> None:
    one, two = f'a = """{BODY}"""', f'b = r"""{BODY}"""'
    source = f"{HEAD}{one}\n# why\nc = {DECLARED}\n{two}\n{CALL.format(cpp='c', cuda='[a, b]')}{MODEL}"
    found = infilling(source)
    assert found.middle.startswith(one)
    assert found.middle.endswith(two)
    assert (found.kind, found.pieces) == ("source", 2)
    between = source.replace("# why", "print('busy')")
    assert refused(between).reason is Reason.SCATTERED
    assert "line" in refused(between).detail


def test_a_named_list_of_texts_is_one_piece() -> None:
    listed = f'sources = ["""{BODY}""", """{BODY}"""]'
    found = infilling(f"{HEAD}{listed}\n{CALL.format(cpp=DECLARED, cuda='sources')}{MODEL}")
    assert (found.middle, found.pieces) == (listed, 1)


def test_a_literal_in_the_call_is_the_middle() -> None:
    text = f'"""{BODY}"""'
    found = infilling(f"{HEAD}{CALL.format(cpp=DECLARED, cuda=text)}{MODEL}")
    assert found.middle == text


def test_a_cpp_kernel_is_found_among_the_cpp_sources() -> None:
    text = 'code = """torch::Tensor run(torch::Tensor x) { return x * 2; }"""'
    found = infilling(f'{HEAD}{text}\next = load_inline("e", code, functions=["run"])\n{MODEL}')
    assert found.middle == text


def test_the_source_may_be_an_attribute_in_a_class() -> None:
    text = f'self.code = """{BODY}"""'
    source = (f"{HEAD}class ModelNew(torch.nn.Module):\n    def __init__(self):\n        {text}\n"
              f"        self.ext = load_inline(name='e', cpp_sources=[], cuda_sources=self.code)\n")
    assert infilling(source).middle == text


TRITON = '''\
import triton
import triton.language as tl


@triton.jit
def first(x, n: tl.constexpr):
    """Doc."""
    i = tl.program_id(0)
    tl.store(x + i, n)


@triton.autotune(configs=[], key=[])
@triton.jit
def second(x):  # one line
\ttl.store(x, 1)  # é
'''


def test_a_triton_module_is_cut_at_the_bodies_of_its_jit_functions() -> None:
    found = infilling(TRITON + "\n\nclass ModelNew:\n    pass\n")
    assert found.prefix.endswith("def first(x, n: tl.constexpr):\n")
    assert found.middle.startswith('    """Doc."""\n')
    assert found.middle.endswith("\ttl.store(x, 1)")
    assert (found.kind, found.pieces) == ("triton", 2)
    assert infilling("import triton\n@triton.jit\ndef f(x): y = x; x = y").middle == "y = x; x = y"


@pytest.mark.parametrize(
    ("reason", "source"),
    [
        (Reason.NOT_PYTHON, "def broken(:"),
        (Reason.NOT_PYTHON, "x = '\udc80'"),
        (Reason.NOT_PYTHON, "x = 1\0"),
        (Reason.NO_KERNEL, "class ModelNew: pass"),
        (Reason.NO_KERNEL, ""),
        (Reason.SEPARATE_FILES, "from torch.utils.cpp_extension import load\nload('e', ['k.cu'])"),
        (Reason.NO_DEFINITION, HEAD + CALL.format(cpp=DECLARED, cuda='"int f(int); // {"')),
        (Reason.F_STRING, HEAD + 's = f"""void f() {{ {3} }}"""\n' + CALL.format(cpp=DECLARED, cuda="s")),
        (Reason.F_STRING, HEAD + CALL.format(cpp=DECLARED, cuda='["a" f"{1}"]')),
        (Reason.COMPUTED_STRING, HEAD + CALL.format(cpp=DECLARED, cuda='"void f() {}" + "x"')),
        (Reason.COMPUTED_STRING, HEAD + 's = "void f() {N}".replace("N", "")\n' + CALL.format(cpp="None", cuda="s")),
        (Reason.COMPUTED_STRING, HEAD + 's, t = "void f() {}", ""\n' + CALL.format(cpp="None", cuda="s")),
        (Reason.COMPUTED_STRING, HEAD + "def build(s):\n    " + CALL.format(cpp="None", cuda="s")),
        (Reason.ASSIGNED_AGAIN, HEAD + 's = "void f() {}"\ns += "x"\n' + CALL.format(cpp="None", cuda="s")),
        (Reason.ASSIGNED_AGAIN, HEAD + 's = "void f() {}"\ns = "void g() {}"\n' + CALL.format(cpp="''", cuda="s")),
        (Reason.UNKNOWN_NAME, HEAD + CALL.format(cpp=DECLARED, cuda="elsewhere")),
        (Reason.UNKNOWN_NAME, HEAD + "s = s\n" + CALL.format(cpp=DECLARED, cuda="s")),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_says_why(reason: Reason, source: str) -> None:
    found = refused(source)
    assert found.reason is reason
    assert found.detail


def test_every_reason_is_tested(make_kernel: Callable[..., str]) -> None:
    marks = [one for one in test_what_cannot_be_cut_says_why.pytestmark if one.name == "parametrize"]  # type: ignore
    shown = {reason for reason, _ in marks[0].args[1]} | {Reason.SCATTERED}
    assert shown == set(Reason)
    assert infilling(make_kernel()).middle.startswith('source = """')


@pytest.mark.parametrize("terms", [300, 600, 900, 1500, 3000])
def test_deep_nesting_is_no_crash(terms: int) -> None:
    chain = "+".join(['"a"'] * terms)
    assert isinstance(cut(f'{HEAD}load_inline("e", cuda_sources={chain})\n'), Uncut)
