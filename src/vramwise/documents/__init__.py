"""Config files as documents: reading with the span of every key, and editing by span. Knows no trainer."""
