"""Export of checkpoints, and upload to the Hugging Face Hub."""
