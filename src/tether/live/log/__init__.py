"""The log: entries chained by hashes, in memory, SQLite or PostgreSQL."""
