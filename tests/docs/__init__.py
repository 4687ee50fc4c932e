"""The documents, tested."""
