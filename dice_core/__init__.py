"""DICE's library: curation, arena, bench, model, train, lake, report. No Prefect, no command line, no global state."""

__version__ = "0.1.0"
