"""Noticing and surviving failures: watchdog, lost peers, non-finite updates."""
