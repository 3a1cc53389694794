"""Files by path or address: found, read within limits, written whole, fetched, cached, locked."""
