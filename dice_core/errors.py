"""One tree of errors; each class carries the exit code that the command line returns for it.

    DiceError                     1  unexpected
    ├── UsageError                2  the request itself is wrong (flag, name, missing file)
    ├── ContractError             3  a contract or a check failed
    │   ├── SourceError              a source file cannot be read as what it claims to be
    │   │   └── HubError                 the hub does not answer, or not as a hub
    │   └── SchemaError              columns are missing, extra or of another type
    ├── AuditError                4  stored bytes and their recorded hash differ
    ├── PartialError              5  finished, with quarantined or failed items
    ├── BusyError                 6  another process holds the lock
    ├── UnfitError                7  this machine cannot do the work as asked
    ├── ArenaError                1  our own side of an evaluation broke
    │   └── ProtocolError            a frame from a worker is malformed
    ├── LakeError                 1  the lake refused a write or a read
    ├── TrainingError             1  training cannot go on
    │   ├── DivergedError            the loss became NaN or exploded
    │   └── ResumeError              a checkpoint belongs to another run
    ├── EndpointError             1  an endpoint gave no usable answer
    └── TrackingError             1  MLflow refused

130 (interrupted) is given by the command line itself.
"""

from __future__ import annotations


class DiceError(Exception):
    """Base of every error that DICE raises on purpose. The message is for people: it names file, row, field."""

    exit_code = 1


class UsageError(DiceError):
    """The request itself is wrong: an unknown name, a bad flag, a file that is not there."""

    exit_code = 2


class ContractError(DiceError):
    """A contract or a check failed; nothing was written."""

    exit_code = 3


class SourceError(ContractError):
    """A source file cannot be read as what it claims to be (empty, truncated, another format)."""


class HubError(SourceError):
    """The hub that a source is on does not answer, or not as a hub, and the source is not in the home."""


class SchemaError(ContractError):
    """A source's columns are missing, extra or of another type."""


class AuditError(DiceError):
    """Stored bytes and their recorded hash differ."""

    exit_code = 4


class PartialError(DiceError):
    """The work finished, but some items were quarantined or failed."""

    exit_code = 5


class BusyError(DiceError):
    """Another process holds the lock that this work needs."""

    exit_code = 6


class UnfitError(DiceError):
    """This machine cannot do the work as asked (no compiler, no GPU, isolation below the configured level)."""

    exit_code = 7


class ArenaError(DiceError):
    """Our own side of an evaluation broke; never counted against a kernel."""


class ProtocolError(ArenaError):
    """A frame from a worker is malformed, too large or out of turn."""


class LakeError(DiceError):
    """The lake refused a write or a read."""


class TrainingError(DiceError):
    """Training cannot go on."""


class DivergedError(TrainingError):
    """The loss became NaN, infinite or exploded."""


class ResumeError(TrainingError):
    """A checkpoint belongs to another run (configuration, data or code differ)."""


class EndpointError(DiceError):
    """A chat endpoint gave no usable answer in all its tries."""


class TrackingError(DiceError):
    """MLflow refused, or a registered model does not load back."""
