"""Live use: an advisor in front of a running system, with a durable, hash-chained log of what it did and saw."""
