from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dice_core.arena.capture import (
    MAX_SOURCE_BYTES,
    BuildRequest,
    CaptureOnly,
    CapturePlaceholder,
    fake_cpp_extension,
)


def captured(call: Callable[[Any], object]) -> BuildRequest:
    """The one request that `call` makes through the stand-in module."""
    taken: list[BuildRequest] = []

    def handler(request: BuildRequest) -> str:
        taken.append(request)
        return "module"

    module = fake_cpp_extension(handler)
    assert call(module) == "module"
    assert len(taken) == 1
    return taken[0]


def test_every_spelling_of_the_sources_gives_the_same_request() -> None:
    plain = captured(lambda ext: ext.load_inline("a", "int x;", functions=["f"]))
    assert captured(lambda ext: ext.load_inline(name="b", cpp_sources=["int x;"], functions="f")).key == plain.key
    assert (
        captured(lambda ext: ext.load_inline("c", cpp_sources="int x;", functions={"f": "f"}, cuda_sources="")).key
        == plain.key
    )
    assert (
        captured(lambda ext: ext.load_inline("d", ["int x;"], None, functions=["f"], extra_cflags=[""])).key
        == plain.key
    )
    assert plain.functions == (("f", "f"),)
    assert not plain.with_cuda


def test_a_change_of_source_flag_or_binding_changes_the_key() -> None:
    base = captured(lambda ext: ext.load_inline("a", "int x;", functions=["f"]))
    others = [
        captured(lambda ext: ext.load_inline("a", "int y;", functions=["f"])),
        captured(lambda ext: ext.load_inline("a", "int x;", functions=["g"])),
        captured(lambda ext: ext.load_inline("a", "int x;", functions=["f"], extra_cflags=["-O3"])),
        captured(lambda ext: ext.load_inline("a", "int x;", functions=["f"], no_implicit_headers=True)),
        captured(lambda ext: ext.load_inline("a", "int x;", "k", functions=["f"])),
    ]
    assert len({request.key for request in [base, *others]}) == 6


def test_cuda_sources_turn_cuda_on_and_unknown_arguments_are_tolerated() -> None:
    request = captured(
        lambda ext: ext.load_inline("a", "", cuda_sources=["k1", "k2"], verbose=True, keep_intermediates=False, x=1)
    )
    assert request.with_cuda
    assert request.cuda_sources == ("k1", "k2")
    assert request.functions == ()


def test_load_reads_the_files_it_names(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("cpp text")
    (tmp_path / "b.cu").write_text("cuda text")
    request = captured(lambda ext: ext.load(name="n", sources=[str(tmp_path / "a.cpp"), str(tmp_path / "b.cu")]))
    assert request.cpp_sources == ("cpp text",)
    assert request.cuda_sources == ("cuda text",)
    assert request.separate_sources
    assert not request.implicit_headers


def test_the_candidates_own_headers_travel_with_the_request(tmp_path: Path) -> None:
    (tmp_path / "inc" / "deep").mkdir(parents=True)
    (tmp_path / "inc" / "deep" / "a.h").write_text('#include "b.cuh"\n#include <vector>\n')
    (tmp_path / "inc" / "deep" / "b.cuh").write_text("int b;")
    (tmp_path / "k.cu").write_text('#include "deep/a.h"\n#include "../secret.h"\n')
    (tmp_path.parent / "secret.h").write_text("int secret;")
    wanted = (("b.cuh", "int b;"), ("deep/a.h", '#include "b.cuh"\n#include <vector>\n'))
    paths = [str(tmp_path / "inc")]
    loaded = captured(lambda ext: ext.load("n", sources=str(tmp_path / "k.cu"), extra_include_paths=paths))
    assert loaded.headers == wanted
    inline = captured(
        lambda ext: ext.load_inline("n", '#include "deep/a.h"', functions="f", extra_include_paths=paths)
    )
    assert inline.headers == wanted
    assert BuildRequest.from_json(json.loads(json.dumps(inline.to_json()))) == inline
    for name in ("/etc/passwd", "../x.h", "a/../x.h", "a//b.h", "./a.h", ""):
        with pytest.raises(ValueError, match="headers"):
            BuildRequest.from_json({**inline.to_json(), "headers": [[name, ""]]})


def test_json_round_trip_keeps_the_key() -> None:
    request = captured(lambda ext: ext.load_inline("a", "int x;", "k", functions={"f": "doc"}, extra_ldflags=["-lm"]))
    again = BuildRequest.from_json(json.loads(json.dumps(request.to_json())))
    assert again == request
    assert again.key == request.key


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cpp_sources": "text"}, "cpp_sources"),
        ({"cpp_sources": [1]}, "cpp_sources"),
        ({"cpp_sources": ["a\0b"]}, "cpp_sources"),
        ({"functions": [["f"]]}, "functions"),
        ({"functions": [["f(); evil", "doc"]]}, "functions"),
        ({"with_cuda": 1}, "with_cuda"),
        ({"name": None}, "name"),
        ({"surprise": 1}, "surprise"),
        ({"cpp_sources": ["x" * (MAX_SOURCE_BYTES + 1)]}, "bytes of source"),
        ({"extra_cflags": ["-O2"] * 1001}, "extra_cflags"),
    ],
)
def test_a_malformed_request_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    good = {"name": "a", "cpp_sources": ["int x;"]}
    BuildRequest.from_json(good)
    with pytest.raises(ValueError, match=field):
        BuildRequest.from_json({**good, **change})


def test_the_placeholder_raises_only_when_called() -> None:
    placeholder = CapturePlaceholder("ext")
    function = placeholder.anything
    with pytest.raises(CaptureOnly, match=r"ext\.anything"):
        function(1, key=2)
    assert not hasattr(placeholder, "__wrapped__")


def test_the_real_module_is_never_imported() -> None:
    before = sys.modules.get("torch.utils.cpp_extension")
    fake_cpp_extension(lambda request: None)
    assert sys.modules.get("torch.utils.cpp_extension") is before


@pytest.mark.parametrize("field", ["name", "cpp_sources", "extra_cflags", "functions"])
def test_lone_surrogates_are_refused(field: str) -> None:
    plain = {"name": "x", "cpp_sources": ["a"], "extra_cflags": [], "functions": [["f", ""]]}
    bad = {"name": "\ud800", "cpp_sources": ["\ud800"], "extra_cflags": ["-D\ud800"], "functions": [["f", "\ud800"]]}
    assert BuildRequest.from_json(plain).name == "x"
    with pytest.raises(ValueError, match=f"field {field}: holds a lone surrogate"):
        BuildRequest.from_json({**plain, field: bad[field]})
