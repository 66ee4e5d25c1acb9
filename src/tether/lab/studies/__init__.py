"""One study, one file: its panels, claims and table."""
