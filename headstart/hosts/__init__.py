"""Several machines that compute one run together: how they find each other, and what they tell each other."""

from headstart.hosts.crew import Crew, crew
from headstart.hosts.joining import cluster_size, use_hosts

__all__ = ["Crew", "cluster_size", "crew", "use_hosts"]
