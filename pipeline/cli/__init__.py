"""The command line: composition, validation, help texts, one-line errors."""
