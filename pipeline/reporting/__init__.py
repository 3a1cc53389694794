"""What the report shows: plots, score tables, published scores, the stage graph."""
