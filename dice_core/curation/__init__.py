"""Curation: from rows that claim speedups to a dataset version that shows where each row came from and why."""
