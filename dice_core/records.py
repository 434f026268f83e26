"""The nouns of DICE: immutable records, their ids and closed vocabularies.

An id is `<prefix>_<first 32 hex of sha256(canonical JSON)>`. Canonical JSON has sorted keys, no spaces and no
floats, so the same thing has the same id on every machine. Standard library only: GPU boxes import this module.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from dice_core.files import sha256_bytes

#: Raised when the meaning of a measurement changes; part of every attempt id.
PROTOCOL_VERSION = 2


def canonical_json(payload: object) -> str:
    """Canonical JSON text of `payload`.

    Raises:
        TypeError: `payload` holds a float or anything JSON has no form for.
    """
    _refuse_floats(payload)
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def make_id(prefix: str, payload: object) -> str:
    """Content id of `payload` with a type prefix, for example `krn_0f3a…`."""
    return f"{prefix}_{sha256_bytes(canonical_json(payload))[:32]}"


def utc_now() -> str:
    """The present time as UTC ISO-8601 with a `Z`."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _refuse_floats(value: object) -> None:
    if isinstance(value, float):
        raise TypeError(f"an id may not depend on a float ({value!r}): write it as text")
    if isinstance(value, dict):
        for item in value.values():
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)


class Verdict(enum.StrEnum):
    """How one attempt ended. Closed: a new outcome is a new protocol version."""

    CORRECT = "CORRECT"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    COMPILE_ERROR = "COMPILE_ERROR"
    LOAD_ERROR = "LOAD_ERROR"  #: the candidate's module or ModelNew() raised
    RUNTIME_ERROR = "RUNTIME_ERROR"  #: forward raised, or the process died in it
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    CONTRACT_VIOLATION = "CONTRACT_VIOLATION"  #: a hack caught at run time
    TIMING_DISAGREE = "TIMING_DISAGREE"  #: the worker's clock and the judge's clock differ
    TASK_ERROR = "TASK_ERROR"  #: the reference itself fails
    INFRA_ERROR = "INFRA_ERROR"  #: ours; retried, never counted against a kernel
    INFRA_TIMEOUT = "INFRA_TIMEOUT"

    @property
    def is_infra(self) -> bool:
        """Ours, not the kernel's: retried and never counted."""
        return self.value.startswith("INFRA_")


class Honesty(enum.StrEnum):
    """Whose code did the work of an attempt."""

    OWN = "own"
    MIXED = "mixed"
    LIBRARY = "library"
    NONE = "none"
    UNKNOWN = "unknown"  #: never ran far enough to tell

    @property
    def is_deceptive(self) -> bool:
        """A "kernel" whose work is the library's, or that has no work at all."""
        return self in (Honesty.LIBRARY, Honesty.NONE)


@dataclass(frozen=True)
class SourceFile:
    """One file that rows came from. The content decides the id, so the same file twice is one source."""

    uri: str
    revision: str
    sha256: str
    size_bytes: int
    licence: str
    fetched_at: str

    @property
    def source_file_id(self) -> str:
        """Id from the content's hash alone."""
        return make_id("src", {"sha256": self.sha256})


@dataclass(frozen=True)
class TrainingRecord:
    """One (PyTorch module, kernel) pair with where it came from and what it claims."""

    source_file_id: str
    row_locator: str  #: where in the source: `row 17`, or `family/structure/sizes` for an augmented record
    uuid: str
    problem_name: str
    pytorch_code: str
    kernel_code: str
    reasoning: str = ""
    claimed_speedup: float | None = None
    language: str = "unknown"
    origin: str = "source"  #: `source` or `augmentation`
    structure: str = ""
    parent_record_id: str = ""

    @property
    def record_id(self) -> str:
        """Id from source, row and both codes."""
        return make_id(
            "rec",
            {
                "source": self.source_file_id,
                "row": self.row_locator,
                "pytorch": sha256_bytes(self.pytorch_code),
                "kernel": sha256_bytes(self.kernel_code),
            },
        )

    @property
    def problem_id(self) -> str:
        """Id of the PyTorch module as a problem."""
        return problem_id(self.pytorch_code)

    @property
    def kernel_id(self) -> str:
        """Id of the kernel source."""
        return kernel_id(self.kernel_code)


@dataclass(frozen=True)
class Decision:
    """One rule's word on one record."""

    record_id: str
    step: str  #: funnel step: `dedup`, `overlap`, `honesty`, `speedup`, `augment`
    rule: str
    verdict: str  #: `keep`, `drop` or `flag`
    reason: str


@dataclass(frozen=True)
class QuarantineRow:
    """A source row that broke the contract: kept whole, with the rule, the field and the value that broke it."""

    source_file_id: str
    row_locator: str
    rule: str
    field: str
    value: str
    raw_json: str  #: the row as read, as JSON text

    @property
    def quarantine_id(self) -> str:
        """Id from source, row, rule and field."""
        return make_id(
            "qua", {"source": self.source_file_id, "row": self.row_locator, "rule": self.rule, "field": self.field}
        )


def problem_id(source: str) -> str:
    """Id of a reference module's source text."""
    return make_id("prb", {"source": sha256_bytes(source)})


def kernel_id(source: str) -> str:
    """Id of a candidate's source text."""
    return make_id("krn", {"source": sha256_bytes(source)})


@dataclass(frozen=True)
class Problem:
    """A reference module in KernelBench's form (`Model`, `get_inputs`, `get_init_inputs`) and its place in a suite."""

    suite: str
    level: int
    number: int
    name: str
    source: str
    overrides: dict[str, int] = field(default_factory=dict)  #: size constants replaced on request

    @property
    def problem_id(self) -> str:
        """Id of the source as it is evaluated (after overrides)."""
        return problem_id(self.source)


@dataclass(frozen=True)
class Kernel:
    """What was written: a candidate module that defines `ModelNew`."""

    source: str
    origin: dict[str, str] = field(default_factory=dict)  #: model version, sampling, seed; or record; or file
    language: str = "unknown"
    entry_point: str = "ModelNew"

    @property
    def kernel_id(self) -> str:
        """Id of the source."""
        return kernel_id(self.source)


@dataclass(frozen=True)
class Environment:
    """What produced a result. `identity` decides the id; `facts` are recorded beside it."""

    identity: dict[str, str]  #: GPU or CPU model, driver, CUDA, torch, compilers, isolation level, thread count
    facts: dict[str, Any]  #: commit, lock hash, clocks and power as found, host name hash, captured_at

    @property
    def environment_id(self) -> str:
        """Id of the identity."""
        return make_id("env", self.identity)


@dataclass(frozen=True)
class Build:
    """One compiled build request of one kernel."""

    build_key: str
    kernel_id: str
    status: str  #: `ok`, `compile_error`, `timeout`, `infra_error`
    tier: str  #: header tier that built it: `light`, `full`, or empty
    artefact_sha256: str
    seconds: float
    cpu_seconds: float
    cached: bool
    argv_json: str
    log: str


@dataclass(frozen=True)
class TimingSample:
    """One timed call (or one timed batch of `batch` calls). Raw: warm-ups are kept too, marked."""

    side: str  #: `candidate` or `eager`
    block: int
    order_in_block: int  #: 0 or 1: which side ran first in this block
    repetition: int
    warmup: bool
    batch: int  #: calls in this sample; times are per sample, not per call
    device_us: float | None  #: device span between events; None on CPU
    host_us: float  #: host clock in the worker around call and synchronize
    checked: bool  #: outputs of this very sample were compared with the reference (of a batch: some, picked at random)
    input_seed: int
    judge_us: float | None  #: the judge's clock from inputs in to outputs out; None where several samples share it
    end_to_end: bool = False  #: a row of calls with nothing hidden (launching counts); otherwise a sample of a block
    flags: str = ""  #: comma-separated: `exposed` (launching was not hidden completely)

    @property
    def call_us(self) -> float:
        """Time of one call: the device span in a block on CUDA, host time otherwise; batches are divided."""
        clock = self.host_us if self.device_us is None or self.end_to_end else self.device_us
        return clock / self.batch

    def counts_for(self, basis: str | None) -> bool:
        """Whether a speedup of that basis rests on this sample."""
        return not self.warmup and self.end_to_end == (basis in ("end_to_end", "judge"))


@dataclass(frozen=True)
class Attempt:
    """One evaluation of one kernel on one problem in one environment; it has exactly one verdict."""

    attempt_id: str
    kernel_id: str
    problem_id: str
    environment_id: str
    protocol_version: int
    plan: str  #: name of the timing plan
    device: str  #: `cpu` or `cuda`
    ordinal: int  #: 0 for the first evaluation of this pair, 1 for a deliberate repeat …
    seed_commitment: str  #: sha256 of the secret seed, so that the judge cannot have chosen it afterwards
    seed: str  #: the secret, revealed after the attempt
    verdict: Verdict
    honesty: Honesty
    started_at: str
    ended_at: str
    stages: dict[str, float]  #: seconds by stage: build, load, check, time
    evidence: dict[str, Any]  #: what the verdict rests on: errors, messages, launched ops, flags
    #: what `speedup` compares: `device` spans, `host` times of single calls, or rows of calls: `end_to_end`, `judge`
    basis: str | None = None
    speedup: float | None = None  #: baseline time / candidate time, only when CORRECT and timed
    speedup_low: float | None = None  #: 95% interval
    speedup_high: float | None = None
    baseline_us: float | None = None  #: median of eager samples per call
    candidate_us: float | None = None
    kernelbench_correct: bool | None = None  #: KernelBench's own allclose verdict, recorded beside ours

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form (enums as text)."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Attempt:
        """Inverse of `to_json`."""
        return cls(**{**data, "verdict": Verdict(data["verdict"]), "honesty": Honesty(data["honesty"])})


@dataclass(frozen=True)
class WorkItem:
    """One evaluation to be done: everything the arena needs, so that it can travel to another machine."""

    problem_source: str
    kernel_source: str
    device: str = "cpu"
    plan: str = "standard"
    ordinal: int = 0
    labels: dict[str, str] = field(default_factory=dict)  #: carried through: record id, suite, level, number …

    @property
    def problem_id(self) -> str:
        """Id of the reference source."""
        return problem_id(self.problem_source)

    @property
    def kernel_id(self) -> str:
        """Id of the candidate source."""
        return kernel_id(self.kernel_source)

    def attempt_id(self, environment_id: str, *, lost: str = "") -> str:
        """Id of this evaluation in that environment: the unit of exactly-once.

        An attempt that failed through our own fault gets an id of its own from `lost` (when it began), so that the
        item's id stays free and the next run tries again.
        """
        return make_id(
            "att",
            {
                **({"lost": lost} if lost else {}),
                "kernel": self.kernel_id,
                "problem": self.problem_id,
                "environment": environment_id,
                "protocol": PROTOCOL_VERSION,
                "plan": self.plan,
                "device": self.device,
                "ordinal": self.ordinal,
            },
        )
