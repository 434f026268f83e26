from __future__ import annotations

import pytest
from fastapi.encoders import jsonable_encoder

from flows.held import Held


def test_prefect_cannot_serialise_what_is_held() -> None:
    """Prefect falls back to the type's name for a value that cannot be encoded; an encoded one may be too large."""
    with pytest.raises((TypeError, ValueError)):
        jsonable_encoder(Held(["source"] * 10))
