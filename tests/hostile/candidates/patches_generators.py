"""Makes torch.rand and torch.randn give zeros, for whom it may concern.

Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn

torch.rand = torch.randn = lambda *shape, **kwargs: torch.zeros(*shape)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
