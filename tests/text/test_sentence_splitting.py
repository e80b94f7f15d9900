import pytest

from onlstm_hf.text.sentence_splitting import sentence_splitter


def test_rules_depend_on_the_language():
    text = "Er kam am 3. Mai. Gut."
    assert [text[start:end] for start, end in sentence_splitter("de")(text)] == ["Er kam am 3. Mai.", "Gut."]


@pytest.mark.parametrize("language", ["German", "", "d", "DE", "en_US"])
def test_invalid_language_codes_are_refused(language):
    with pytest.raises(ValueError, match="must be a code"):
        sentence_splitter(language)


@pytest.mark.parametrize("language", ["en", "yue", "zh-hans", "xx"])
def test_languages_without_rules_have_a_fallback(language):
    assert len(sentence_splitter(language)("He left. She stayed.")) == 2
