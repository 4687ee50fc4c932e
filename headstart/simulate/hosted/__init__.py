"""The driver of a federation on several machines, each of which holds a share of the clients."""
