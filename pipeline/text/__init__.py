"""Decoding, markup removal, cleaning and sentence splitting of documents."""
