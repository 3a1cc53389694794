"""What a command says on its terminal: lines, bars, counts, options; without secrets."""
