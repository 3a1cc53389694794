"""What `python -m model.launch` is made of: the ranks of this machine, and other hosts by ssh."""
