"""Tasks: one module for each step, thin Prefect wrappers over `dice_core`."""
