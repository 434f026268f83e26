"""Makes every comparison in torch true.

Row: PAT-04
Defence: the comparison is made in another process
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn

torch.allclose = torch.equal = lambda *args, **kwargs: True
torch.testing.assert_close = lambda *args, **kwargs: None


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
