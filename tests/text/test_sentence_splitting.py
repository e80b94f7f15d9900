"""Texts of several sentences."""

import pytest

from onlstm_hf.text.sentence_splitting import sentence_splitter


def test_rules_are_those_of_the_language():
    text = "Er kam am 3. Mai. Gut."
    assert [text[start:end] for start, end in sentence_splitter("de")(text)] == ["Er kam am 3. Mai.", "Gut."]


@pytest.mark.parametrize("language", ["German", "", "d", "DE", "en_US"])
def test_what_is_no_language_code_is_refused(language):
    with pytest.raises(ValueError, match="must be a code"):
        sentence_splitter(language)


@pytest.mark.parametrize("language", ["en", "yue", "zh-hans", "xx"])
def test_codes_without_rules_of_their_own_still_split(language):
    assert len(sentence_splitter(language)("He left. She stayed.")) == 2
