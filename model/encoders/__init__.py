"""The networks: BERT's layers, attention, dropout, loss."""
