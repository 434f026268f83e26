"""The report: one self-contained HTML page and PNG plots, made from the lake's views."""
