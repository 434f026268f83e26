from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from dice_core.curation.dedup import deduplicate
from dice_core.curation.normalise import cpp_form, fingerprint, structure_fingerprint, tidy
from dice_core.records import TrainingRecord

MakeRecord = Callable[..., TrainingRecord]
MakeSource = Callable[..., str]


def test_spelling_does_not_change_the_fingerprint() -> None:
    plain = '''
def f(x, n=2):
    """Doc."""
    total = 0
    for item in x:  # walk
        total = total + item * n
    return [total for other in x if other]
'''
    other = '''
def f(values,   m = 2) -> int:
    acc: int = 0
    for v in values:
        acc = (acc + v*m)
    return [acc for w in values if w]
'''
    assert fingerprint(plain) == fingerprint(other)


def test_meaning_changes_the_fingerprint() -> None:
    base = "def f(a, b):\n    c = a - b\n    return c\n"
    others = [
        "def f(a, b):\n    c = b - a\n    return c\n",  # operands swapped
        "def f(a, b):\n    c = a + b\n    return c\n",
        "def f(a, b):\n    c = a - b\n    return a\n",
        "def f(a, b):\n    c = a - 1\n    return c\n",
        "def g(a, b):\n    c = a - b\n    return c\n",
        "def f(a, b=1):\n    c = a - b\n    return c\n",
        "def f(a, *b):\n    c = a - b\n    return c\n",
        "def f(a):\n    c = a - b\n    return c\n",  # b is another b
    ]
    prints = [fingerprint(source) for source in [base, *others]]
    assert len(set(prints)) == len(prints)
    # Swapping the parameters is swapping the operands.
    assert fingerprint("def f(b, a):\n    c = a - b\n    return c\n") == prints[1]


def test_names_that_others_can_see_stay() -> None:
    assert fingerprint("class A:\n    x = 1\n") != fingerprint("class A:\n    y = 1\n")
    assert fingerprint("self.a = 1") != fingerprint("self.b = 1")
    assert fingerprint("f(dim=1)") != fingerprint("f(axis=1)")
    assert fingerprint("import a") != fingerprint("import b")
    assert fingerprint("def f():\n    return relu(1)") != fingerprint("def f():\n    return tanh(1)")


def test_a_variable_never_becomes_the_same_as_a_library_name() -> None:
    shadowed = "def f(x):\n    torch = x\n    return torch.sum()\n"
    library = "def f(x):\n    y = x\n    return torch.sum()\n"
    assert fingerprint(shadowed) != fingerprint(library)


def test_cpp_in_strings_is_compared_by_tokens() -> None:
    one = 'src = """#include <a.h>\nint f(int x) { return x+1; } // add\n"""'
    two = 'code = """\n#include <a.h>\n/* more */ int f( int x ) {\n  return x + 1;\n}"""'
    three = 'src = """#include <a.h>\nint f(int x) { return x-1; }\n"""'
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(one) != fingerprint(three)
    assert cpp_form('f("a // b", x<y>z); // c') == 'f ( "a // b" , x < y > z ) ;'
    assert cpp_form("#define A 1\nint b;") != cpp_form("#define A 1 int b;")
    assert fingerprint("a = 'two  words'") != fingerprint("a = 'two words'")


def test_structure_ignores_sizes_and_inputs_but_not_operations(make_module: MakeSource) -> None:
    small, large = make_module("relu", 8), make_module("relu", 1024).replace("= 1024", "= 1024 * 8")
    large = large.replace("torch.rand(", "torch.randn(")
    assert fingerprint(small) != fingerprint(large)
    assert structure_fingerprint(small) == structure_fingerprint(large)
    assert structure_fingerprint(small) != structure_fingerprint(make_module("tanh", 8))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_has_a_fingerprint(text: str) -> None:
    assert fingerprint(text) == fingerprint(text.replace("\n", "\r\n")) or "\r" in text
    assert len(structure_fingerprint(text)) == 64


def test_hostile_sources_have_fingerprints() -> None:
    for source in ("(" * 5_000 + ")" * 5_000, "-" * 20_000 + "1", "a\0b", "x = '\ud800'", "f" + "(f" * 900):
        assert len(fingerprint(source)) == 64


def test_tidy_joins_line_ends() -> None:
    assert tidy("\r\na  \r\nb\t\n\n") == "a\nb"


def test_the_first_of_equal_records_stays_and_the_others_name_it(
    make_record: MakeRecord, make_kernel: MakeSource
) -> None:
    first = make_record(0)
    same = make_record(0, row_locator="row 7", claimed_speedup=9.0, kernel_code=first.kernel_code.replace("\n", "\r\n"))
    renamed = first.kernel_code.replace("(self, x)", "(self, y)").replace("run(x)\n", "run(y)\n")
    respelt = make_record(0, row_locator="row 8", kernel_code="# my kernel\n" + renamed)
    other_kernel = make_record(0, row_locator="row 9", kernel_code=make_kernel("relu", "x[i]"))
    other_module = make_record(1, kernel_code=first.kernel_code)
    kept, decisions = deduplicate([first, same, respelt, other_kernel, other_module])
    assert kept == [first, other_kernel, other_module]
    assert [(d.rule, d.verdict) for d in decisions] == [
        ("unique", "keep"), ("exact", "drop"), ("normalised_ast", "drop"), ("unique", "keep"), ("unique", "keep"),
    ]  # fmt: skip
    assert first.record_id in decisions[1].reason and "row 1 of src_test" in decisions[1].reason
    assert first.record_id in decisions[2].reason
