"""The command line: composing, validating, help texts, one-line errors."""
