"""KernelBench problems, KernelBench's file formats and its scores. Standard library and pyarrow only."""
