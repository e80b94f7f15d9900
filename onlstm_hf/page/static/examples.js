// Example sentences, pairs and exercises, with words from the training text of the models of each language.

const ENGLISH = {
  sentences: [
    {
      text: "[S [NP [NP the president] [PP of [NP the company]]] [VP said [S he [VP will [VP sell [NP his shares]]]]]]",
      about: "a tree that is right, under its gold tree",
    },
    { text: "the company said it expects to report a loss", about: "a clause inside a clause" },
    { text: "the price of the stock of the bank fell", about: "phrases inside phrases" },
    { text: "investors who own shares of the company are worried", about: "a relative clause" },
    { text: "the company sold last year reported a loss", about: "a garden path" },
    { text: "while the company was buying the bank raised its offer", about: "another garden path" },
    {
      text: "[S [NP the old man] [VP sold [NP the house] [PP in [NP the spring]]]]",
      about: "a gold tree in which a constituent has three parts",
    },
  ],
  pairs: [
    {
      first: "the companies have said they will sell",
      second: "the companies has said they will sell",
      about: "agreement with a neighbour",
    },
    {
      first: "the trader who sold the bonds was fined",
      second: "the trader who sold the bonds were fined",
      about: "agreement across a relative clause",
    },
    {
      first: "the executives who met the lawyer are pleased",
      second: "the executives who met the lawyer is pleased",
      about: "the same, where some models follow the nearer noun",
    },
    {
      first: "analysts at the bank say the market is weak",
      second: "analysts at the bank says the market is weak",
      about: "agreement across a phrase",
    },
    {
      first: "the managers said they were pleased",
      second: "the managers said they was pleased",
      about: "agreement with a pronoun",
    },
    { first: "the lawyers hurt themselves", second: "the lawyers hurt himself", about: "a reflexive" },
    {
      first: "the companies found themselves in trouble",
      second: "the companies found itself in trouble",
      about: "a reflexive with a thing",
    },
    {
      first: "no company has ever reported a loss",
      second: "the company has ever reported a loss",
      at: "ever",
      about: "“ever” needs a negation: the place is “ever”, since “no” is rarer than “the”",
    },
    { first: "no one has done it yet", second: "someone has done it yet", at: "yet", about: "the same with “yet”" },
    {
      first: "the company said it will report a loss",
      second: "the company said it will reports a loss",
      about: "the form after “will”",
    },
  ],
  exercise: [
    "the president of the company said he will sell his shares",
    "the company said it expects to report a loss",
    "the price of the stock of the bank fell",
    "investors who own shares of the company are worried",
    "the board approved the sale of the unit last week",
    "analysts believe that the market will recover",
    "the old man sold the house in the spring",
    "the bank raised its offer and the company accepted it",
    "while the company was buying the bank raised its offer",
    "traders said the dollar fell because rates were lower",
  ],
};

const LANGUAGES = {
  en: ENGLISH,
  es: {
    sentences: [
      { text: "el presidente del gobierno dijo que no habrá elecciones", about: "una oración dentro de otra" },
      {
        text: "la policía detuvo a los dos hombres en el centro de la ciudad",
        about: "sintagmas dentro de sintagmas",
      },
    ],
  },
  pt: {
    sentences: [
      { text: "o presidente disse que o governo vai apresentar a proposta", about: "uma oração dentro de outra" },
      { text: "o diretor da empresa vendeu as ações no início do ano", about: "sintagmas dentro de sintagmas" },
    ],
  },
  nl: {
    sentences: [
      { text: "de minister zei dat hij de plannen van de regering kent", about: "een bijzin" },
      { text: "de burgemeester van de stad opent het nieuwe station", about: "woordgroepen in woordgroepen" },
    ],
  },
  zh: {
    sentences: [
      { text: "我們 的 老師 說 他 喜歡 這 本 書", about: "words with spaces between them" },
      { text: "他 在 學校 學習 中文", about: "a phrase of place" },
    ],
  },
};

// Returns the examples for a language; English is the fallback.
export function examplesFor(language) {
  const { sentences, pairs = [], exercise = sentences.map(({ text }) => text) } = LANGUAGES[language] ?? ENGLISH;
  return { sentences, pairs, exercise };
}
