"""Training of block-diffusion models: packing, loss, supervised fine-tuning, checkpoints, recipes."""
