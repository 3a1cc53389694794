"""What is small and everyone's: keyed randomness, config fields, cores, ports, language codes."""
