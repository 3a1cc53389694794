"""Parts of `python -m model.launch`: command lines, local ranks, and other hosts by ssh."""
