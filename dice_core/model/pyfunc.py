"""Models-from-code entry of MLflow: opens a folder of weights and answers prompts.

MLflow copies this file beside the weights and runs it when the model is loaded; nothing in DICE imports it, so the
rest of this package needs no MLflow.
"""

from pathlib import Path
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from dice_core.model import backbone
from dice_core.model.decoding import DecodingConfig, generate
from dice_core.model.tokenizer import load_tokenizer

#: Response length when neither the logged model nor the one who loads it says otherwise.
MAX_NEW_TOKENS = 1024


class BlockDiffusionModel(PythonModel):  # type: ignore[misc]
    """Answers user turns with greedy block-diffusion decoding on the CPU."""

    def load_context(self, context: Any) -> None:
        """Open the artifact `weights`: config.json, model.safetensors and tokenizer.json."""
        folder = Path(context.artifacts["weights"])
        self.model = backbone.load(folder)
        self.tokenizer = load_tokenizer(folder)
        config = context.model_config or {}
        self.decoding = DecodingConfig(
            max_new_tokens=int(config.get("max_new_tokens", MAX_NEW_TOKENS)), stop_ids=self.tokenizer.stop_ids
        )

    def predict(self, context: Any, model_input: list[str], params: dict[str, Any] | None = None) -> list[str]:
        """The text of one answer for each prompt."""
        return [out.text for out in generate(self.model, self.tokenizer, model_input, self.decoding)]


set_model(BlockDiffusionModel())
