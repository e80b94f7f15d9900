"""Conversion of weights and checkpoint files of the authors' code, without running code in the files."""
