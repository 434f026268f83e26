"""The arena: builds, runs, checks and times kernels that are assumed hostile."""
