"""Is never imported.

Row: ENV-04
Defence: a deadline for each request
Expected: TIMEOUT
"""

import torch.nn as nn

while True:
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        return x
