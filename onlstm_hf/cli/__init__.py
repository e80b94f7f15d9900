"""The `onlstm-hf` command: a file a subcommand."""
