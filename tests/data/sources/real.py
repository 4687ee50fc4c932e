"""The folder of real files, if there is one; read before tests hide the environment."""

import os

FOLDER = os.environ.get("HEADSTART_DATA")
