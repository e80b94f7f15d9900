"""The `onlstm-hf` command: one file per subcommand, which imports PyTorch and Transformers only when it runs."""
