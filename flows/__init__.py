"""Flows: each reads top to bottom like prose. Logic is in `tasks` (thin) and `dice_core` (the library)."""
