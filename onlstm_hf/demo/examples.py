"""The gallery of the page: sentences and minimal pairs by phenomenon, in words of the Penn Treebank text."""

FIRST_SENTENCE = "the company said it expects to report a loss"
FIRST_PAIR = {
    "grammatical": "the executives who met the lawyer are pleased",
    "ungrammatical": "the executives who met the lawyer is pleased",
}
SENTENCES = {
    "Clauses and phrases": (
        FIRST_SENTENCE,
        "investors who own shares of the company that makes the cars are worried",
        "an analyst said the price of the stock of the bank which owns the company fell",
    ),
    "Garden paths": (
        "the company sold last year reported a loss",
        "while the company was buying the bank raised its offer",
        "the board knew the answer was wrong",
    ),
    "Compared with a gold tree": (
        "(S (NP (DT The) (JJ old) (NN man)) (VP (VBD sold) (NP (DT the) (NN house)) (PP (IN in) (NP (NN spring)))))",
        "[S [NP The company] [VP said [SBAR it [VP expects [NP a loss]]]]]",
    ),
}
PAIRS = {
    "Agreement across a relative clause": (
        tuple(FIRST_PAIR.values()),
        ("the company that the investors criticized was sold", "the company that the investors criticized were sold"),
    ),
    "Reflexives": (
        ("the lawyers hurt themselves", "the lawyers hurt himself"),
        ("the woman who met the lawyers blamed herself", "the woman who met the lawyers blamed themselves"),
    ),
    "Negative polarity items": (
        ("no company has ever reported a loss", "the company has ever reported a loss"),
        ("no senator that the judge liked has ever spoken", "the senator that no judge liked has ever spoken"),
    ),
}
