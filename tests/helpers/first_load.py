"""Imported where processes are forked: what Transformers computes once, the first time that a model is loaded."""

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

get_checkpoint_conversion_mapping("onlstm")
