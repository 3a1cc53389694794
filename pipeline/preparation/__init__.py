"""What `prepare` does to documents, on whichever engine: plan, read, tokenize, shuffle, write."""
