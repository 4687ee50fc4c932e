"""Estimators of the constants in the papers' assumptions: searches by ascent and Lanczos, never holding a Hessian."""

from headstart.theory.estimate.estimates import Estimate, Estimates, estimate_constants
from headstart.theory.estimate.landscape import Effort
from headstart.theory.estimate.region import Ball, Hull, Region

__all__ = ["Ball", "Effort", "Estimate", "Estimates", "Hull", "Region", "estimate_constants"]
