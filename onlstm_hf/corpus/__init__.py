"""Parsing text that is larger than one machine: a step of datatrove, run with its readers, writers and executors."""
