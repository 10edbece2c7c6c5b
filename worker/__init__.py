"""remq: active memory for AI agents on Redis."""
