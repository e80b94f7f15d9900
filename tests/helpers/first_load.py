"""Computes before the fork what Transformers computes at the first load of a model."""

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

get_checkpoint_conversion_mapping("onlstm")
