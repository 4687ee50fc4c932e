"""Preprocessing without pooling the data: sites and server agree on it in a few exchanges of sums, counts and sets."""

from headstart.deploy.agreement.agreement import AbsentClients, Agreement
from headstart.deploy.agreement.local import LocalClients
from headstart.deploy.agreement.negotiation import Negotiation
from headstart.deploy.agreement.said import Said, WrongAnswer
from headstart.deploy.agreement.site import SiteData

__all__ = ["AbsentClients", "Agreement", "LocalClients", "Negotiation", "Said", "SiteData", "WrongAnswer"]
