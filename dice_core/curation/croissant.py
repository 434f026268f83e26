"""Croissant metadata of a CuKe version: a JSON-LD file that dataset tools read (MLCommons Croissant 1.0).

One file object and one record set for each split that has members, with every column's meaning. Publication dates are
left out on purpose: equal versions give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dice_core.files import sha256_bytes

if TYPE_CHECKING:
    from dice_core.curation.cuke import CukeVersion

#: Of the form of the files, not of the data; the data's version is the identifier.
FORM_VERSION = "1.0.0"
#: Column of `cuke.MEMBER_SCHEMA` -> (Croissant type, meaning)
COLUMNS: Mapping[str, tuple[str, str]] = {
    "record_id": ("sc:Text", "content id of the pair: source file, place in it and both codes"),
    "uuid": ("sc:Text", "the source's own id of the row"),
    "problem_name": ("sc:Text", "the source's name of the problem"),
    "pytorch_code": ("sc:Text", "PyTorch module in KernelBench's form: Model, get_inputs, get_init_inputs"),
    "kernel_code": ("sc:Text", "module that defines ModelNew with custom kernels"),
    "reasoning": ("sc:Text", "the reasoning that came with the kernel; may be empty"),
    "source": ("sc:Text", "origin, source file id and place in it"),
    "structure": ("sc:Text", "label of the language-model structure; empty for rows of a source"),
    "claimed_speedup": ("sc:Float", "eager time / kernel time as the source claims it"),
    "measured_speedup": ("sc:Float", "eager time / kernel time as measured here; null where nothing was measured"),
    "speedup_low": ("sc:Float", "lower end of the 95% interval of the measured speedup"),
    "speedup_high": ("sc:Float", "upper end of the 95% interval of the measured speedup"),
    "evidence": ("sc:Text", "what the speedup rests on: measured or claimed"),
    "split": ("sc:Text", "train or validation; a problem family is never divided"),
}
_CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    **{name: f"cr:{name}" for name in (
        "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format",
        "includes", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex", "repeated",
        "replace", "samplingRate", "separator", "source", "subField", "transform")},
    "conformsTo": "dct:conformsTo",
    "isLiveDataset": "cr:isLiveDataset",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
}


def croissant(version: CukeVersion, files: Mapping[str, bytes]) -> bytes:
    """The metadata file.

    Args:
        version: what is described.
        files: the data files by name; those of splits without members are not announced.
    """
    parts = [part for part in ("train", "validation") if version.count(part)]
    licences = sorted({str(source["licence"]) for source in version.recipe.sources if source["licence"]})
    metadata = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "CuKe",
        "identifier": version.version_id,
        "version": FORM_VERSION,
        "description": (
            f"{len(version.members)} pairs of a PyTorch module and a kernel that accelerates it, version "
            f"{version.version_id}, Merkle root {version.merkle_root}. README.md tells how they were chosen and on "
            "what evidence."),
        "license": licences or ["see README.md: the sources state no licence"],
        "url": "https://arxiv.org/abs/2602.11715",
        "citeAs": "DICE, arXiv:2602.11715 (method); the sources are listed under isBasedOn",
        "creator": {"@type": "sc:Organization", "name": "DICE"},
        "keywords": ["CUDA", "kernels", "PyTorch", "code"],
        "isLiveDataset": False,
        "isBasedOn": [
            {"@type": "sc:CreativeWork", "name": str(source["uri"]), "identifier": f"sha256:{source['sha256']}",
             "version": str(source["revision"]), "license": str(source["licence"])}
            for source in version.recipe.sources
        ],
        "distribution": [_file(f"{part}.parquet", files[f"{part}.parquet"]) for part in parts],
        "recordSet": [_records(part) for part in parts],
    }
    return (json.dumps(metadata, indent=1, ensure_ascii=False) + "\n").encode()


def _file(name: str, data: bytes) -> dict[str, str]:
    return {
        "@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": name, "contentSize": f"{len(data)} B",
        "encodingFormat": "application/x-parquet", "sha256": sha256_bytes(data),
    }


def _records(part: str) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet", "@id": part, "name": part, "description": f"pairs of the {part} split",
        "key": {"@id": f"{part}/record_id"},
        "field": [
            {"@type": "cr:Field", "@id": f"{part}/{name}", "name": name, "description": meaning, "dataType": kind,
             "source": {"fileObject": {"@id": f"{part}.parquet"}, "extract": {"column": name}}}
            for name, (kind, meaning) in COLUMNS.items()
        ],
    }
