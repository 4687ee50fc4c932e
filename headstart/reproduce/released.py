"""What the papers' released code computes and no text describes: for comparison, not in the catalogue of methods."""

from jax import Array

from headstart.algorithms import ALGORITHMS, Entry, LocalMOML
from headstart.core import Batch, ClientSamples

__all__ = ["METHODS", "UnscaledRestart"]

BRIGHTEST = 255.0


class UnscaledRestart(LocalMOML):
    """LocalMOML whose restart :math:`S_0` has pixels in 0 .. 255, while those of all other batches are in 0 .. 1.

    The code released for wang's Table 5 divides by 255 where it draws :math:`S_1`, :math:`S_2` and :math:`S_3`, and not
    where it draws :math:`S_0`. The restarted memory is then far away from the shared model, and so are the points at
    which a round's first gradients are taken.
    """

    def restart_batch(self, task: ClientSamples, key: Array) -> Batch:
        """The restart's samples, with inputs as they are stored."""
        batch = super().restart_batch(task, key)
        return batch._replace(x=batch.x * BRIGHTEST)


METHODS = {**ALGORITHMS, "local-moml-unscaled": Entry(UnscaledRestart, "Wang et al. 2023, released code")}
"""Every method that a record may name."""
