"""Statistical scripts: sequences of events of a document, and models that predict the next event of it."""
