"""Works in place on its input and returns a copy.

Row: MUT-02
Defence: inputs are compared after the call and sent anew for every call
Expected: CONTRACT_VIOLATION
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.tanh_().clone()
