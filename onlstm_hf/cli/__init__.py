"""The `onlstm-hf` command: one file per subcommand, which imports PyTorch and Transformers only when it runs.

Each file has the texts `HELP`, `DESCRIPTION` and `EXAMPLES`, and the functions `add_arguments` and `run`.
"""
