"""Common tests of Transformers for all tokenizers, run on the tokenizers of this package."""

import tempfile
import unittest

from transformers import PreTrainedTokenizerFast

from onlstm_hf import build_word_tokenizer
from tests.helpers.transformers_tests import common_tests

TokenizerTesterMixin = common_tests("test_tokenization_common").TokenizerTesterMixin
TEXTS = ["this is a test", "the lower newer", "hello world , how are you ?", "a b c d e f g"]


class TestWordTokenizer(TokenizerTesterMixin, unittest.TestCase):
    tokenizer_class = PreTrainedTokenizerFast
    # Vocabularies differ, so no text has given ids.
    test_tokenizer_from_extractor = False

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        build_word_tokenizer(TEXTS).save_pretrained(folder.name)
        cls.from_pretrained_id = [folder.name]
        super().setUpClass()
