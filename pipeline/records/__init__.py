"""What a stage leaves to be read later: manifest, metrics, checkpoint folders, the record of a run, estimates."""
