"""Block-diffusion language model: backbone, tokenizer, mask rule, noise, prompts and decoding."""
