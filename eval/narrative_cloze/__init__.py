"""Statistical scripts: event sequences of documents, and models that predict the next event."""
