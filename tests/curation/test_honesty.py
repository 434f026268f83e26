from __future__ import annotations

from collections.abc import Callable

from dice_core.curation.honesty import check_honesty
from dice_core.records import TrainingRecord

MakeRecord = Callable[..., TrainingRecord]

PLAIN_TORCH = """\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
"""


def test_an_own_kernel_stays_and_gets_its_language(make_record: MakeRecord) -> None:
    record = make_record(0)
    (kept,), decisions = check_honesty([record])
    assert kept.language == "cuda"
    assert kept.record_id == record.record_id
    assert all(decision.verdict != "drop" for decision in decisions)


def test_a_kernel_that_is_plain_torch_is_dropped_with_its_reasons(make_record: MakeRecord) -> None:
    record = make_record(0, kernel_code=PLAIN_TORCH)
    kept, decisions = check_honesty([record])
    assert kept == []
    assert {(d.record_id, d.step) for d in decisions} == {(record.record_id, "honesty")}
    assert len({d.rule for d in decisions}) == len(decisions)
    (drop,) = (d for d in decisions if d.verdict == "drop")
    assert drop.rule == "no_custom_kernel" and drop.reason.startswith("line ")


def test_a_kernel_that_is_compiled_but_never_called_is_dropped(make_record: MakeRecord) -> None:
    unused = make_record(0).kernel_code.replace("return module.run(x)", "return torch.relu(x) * 2")
    kept, decisions = check_honesty([make_record(0, kernel_code=unused)])
    assert kept == []
    assert "kernel_never_called" in {d.rule for d in decisions if d.verdict == "drop"}


def test_a_flag_that_is_no_deception_is_noted_and_kept(make_record: MakeRecord) -> None:
    mixed = make_record(0).kernel_code.replace("return module.run(x)", "return torch.tanh(module.run(x))")
    kept, decisions = check_honesty([make_record(0, kernel_code=mixed)])
    assert len(kept) == 1
    assert {d.verdict for d in decisions} == {"flag"}
    assert any("tanh" in d.reason for d in decisions)
