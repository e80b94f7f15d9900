"""Parsing of large corpora, on one machine or many: a datatrove step with its readers, writers and executors."""
