from .adapting import adapt
from .folders import Federation, add, init, revoke
from .server_watch import Outcome, run_server
from .site_watch import run_site
from .trial import Trial, up
from .watching import Seen, SiteSeen, status

__all__ = [
    "Federation",
    "Outcome",
    "Seen",
    "SiteSeen",
    "Trial",
    "adapt",
    "add",
    "init",
    "revoke",
    "run_server",
    "run_site",
    "status",
    "up",
]
