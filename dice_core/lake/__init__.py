"""The lake: immutable Parquet under one folder, catalogued by DuckLake. `attempts` alone imports without DuckDB."""
