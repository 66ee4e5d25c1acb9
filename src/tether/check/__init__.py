"""Which assumptions hold, which fail, which cannot be known: from a problem and a log, and online."""
