"""Convolutions that a CPU computes fast inside of compiled loops, for any model, unchanged."""

from headstart.core.convolution.rewrite import with_canonical_convolutions

__all__ = ["with_canonical_convolutions"]
