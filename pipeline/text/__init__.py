"""From the text of a document to sentences, and from sentences to token ids."""
