"""Names of the tasks in results files; each belongs to a section of RESULTS.md."""

from onlstm_hf.hub.cards.logic import LOGIC

LANGUAGE_MODELLING = "language modelling"
CHARACTERS = "character-level language modelling"
TEXT8 = "language modelling of text8"
ABLATIONS = "ablations of the PRPN"
PARSING = "unsupervised constituency parsing"
GRAMMAR = "grammar induction"
SYNTAX = "targeted syntactic evaluation"
WORD_ORDER = "word order"
PUNCTUATION = "punctuation as a cue"
UNKNOWN_WORDS = "unknown words"
LOGICAL_INFERENCE = LOGIC
LISTOPS = "listops"
NARRATIVE_CLOZE = "narrative cloze"
SPEED = "speed"
TOY_ENGLISH = "toy English"
