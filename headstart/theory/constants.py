"""The constants of a federation's losses that the papers' bounds are made of."""

from dataclasses import dataclass, fields

from headstart.core.checks import at_least, positive
from headstart.errors import UsageError

__all__ = ["Constants"]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the bounds need to know of the clients' losses ``f_i``; each is a supremum over clients and over all models.

    Norms are Euclidean for vectors and the spectral norm for matrices. Noise is that of *one sample*, as a standard
    deviation; the bounds divide by batch sizes themselves. Nothing here is squared but the fourth moments, which are
    plain fourth moments, as printed.

    =============================  =================  ==================  ====================  ====================
    field                          Per-FedAvg         nu steps            MOML                  Local-SCGDM
    =============================  =================  ==================  ====================  ====================
    ``smoothness``                 ``L`` (A2)         ``L`` (A2)          ``L`` (A1)            ``L_1`` (A3.8)
    ``hessian_lipschitz``          ``rho`` (A3)       ``rho`` (A3)        ``rho`` (A1)          ``L_2`` (A3.8)
    ``gradient_bound``             ``B`` (A2)         ``B`` (A2)          ``G`` (A4)            ``G`` (A3.8)
    ``gradient_noise``             ``sigma_G`` (A4)   ``sigma_G`` (A4)    ``sigma_G`` (A2)      ``sigma_1`` (A3.8)
    ``hessian_noise``              ``sigma_H`` (A4)   ``sigma_H`` (A4)    ``sigma_H`` (A2)      ``sigma_2`` (A3.8)
    ``gradient_dissimilarity``     ``gamma_G`` (A5)   ``gamma_G`` (A5)    ``gamma_G`` (A5)      not used
    ``hessian_dissimilarity``      ``gamma_H`` (A5)   ``gamma_H`` (A5)    ``gamma_H`` (A6)      not used
    ``gradient_fourth_moment``     not used           ``kappa_G`` (A4)    not used              not used
    ``hessian_fourth_moment``      not used           ``kappa_H`` (A4)    not used              not used
    =============================  =================  ==================  ====================  ====================

    Where the papers differ:

    - Dissimilarity is ``(1/n) sum_i ||grad f_i - grad f||^2 <= gamma_G^2`` with ``f = (1/n) sum_i f_i``. Per-FedAvg
      and nu steps print ``f = sum_i f_i`` in their Assumption 5; the mean of their own (1) is meant, as with the sum
      equal clients would be unlike. ``gamma_G = 2B`` and ``gamma_H = 2L`` always hold, as both note; so
      does ``gamma_G = B``, since a variance is at most a second moment, but not ``gamma_H = L``: spectral norms are
      different.
    - The fourth moments are called kurtosis in the paper but are not divided by the squared variance:
      ``E ||grad l - grad f_i||^4 <= kappa_G``.
    - Local-SCGDM speaks of the noise of one draw, which may be a batch; for a batch of ``K`` samples
      divide ``sigma_1`` and ``sigma_2`` by ``sqrt(K)``.
    - MOML v2 (Theorem 5 there) does without ``gradient_bound`` and needs ``gradient_dissimilarity`` instead.
    - Where whole batches of Hessians enter by their norm and not by their product with a vector (nu steps, Lemma 6),
      the proofs need ``hessian_lipschitz``, ``hessian_noise`` and ``hessian_fourth_moment`` in the Frobenius norm.
    """

    smoothness: float
    hessian_lipschitz: float
    gradient_bound: float
    gradient_noise: float
    hessian_noise: float
    gradient_dissimilarity: float
    hessian_dissimilarity: float
    gradient_fourth_moment: float | None = None
    hessian_fourth_moment: float | None = None

    def __post_init__(self) -> None:
        positive("smoothness", self.smoothness)
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value is None and field.default is None):
                at_least(field.name, value, 0)

    def fourth_moments(self, needed_by: str) -> tuple[float, float]:
        """``kappa_G`` and ``kappa_H``, or an error that names what needs them."""
        if self.gradient_fourth_moment is None or self.hessian_fourth_moment is None:
            raise UsageError(
                f"{needed_by} needs the fourth moments of the noise, and these constants have none.",
                "Set gradient_fourth_moment and hessian_fourth_moment (kappa_G and kappa_H) of Constants.",
            )
        return self.gradient_fourth_moment, self.hessian_fourth_moment
