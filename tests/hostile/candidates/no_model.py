"""Defines no ModelNew.

Expected: LOAD_ERROR
"""

import torch

x = torch.ones(3)
