"""The ranks of a training: how they meet, agree, and what each of them is."""
