"""Never returns.

Row: ENV-04 FNE-06
Defence: a deadline for each request
Expected: TIMEOUT
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            pass
