"""Defines no ModelNew.

Defence: typed verdicts
Expected: LOAD_ERROR
"""

import torch

x = torch.ones(3)
