"""The `onlstm-hf` command: a file a subcommand, which imports PyTorch and Transformers only when it runs."""
