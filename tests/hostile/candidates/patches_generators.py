"""Makes torch.rand and torch.randn give zeros, for whom it may concern.

Row: PAT-10
Defence: inputs come from another process
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn

torch.rand = torch.randn = lambda *shape, **kwargs: torch.zeros(*shape)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
