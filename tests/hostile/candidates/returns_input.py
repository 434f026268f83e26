"""Returns its input, changed in place.

Row: MUT-02
Defence: no memory shared with inputs
Expected: CONTRACT_VIOLATION
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.tanh_()
