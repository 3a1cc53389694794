"""File formats that several readers share: compression, archives, byte ranges, rows."""
