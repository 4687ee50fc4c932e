"""A real federation: the same methods across sites that never share data, on Flower.

What there is, and where it comes from, is listed in the stub file beside this one. Nothing is imported before it is
used: a site's messenger starts anew for every message, and must not wait for JAX.
"""

from typing import Any

import lazy_loader

from headstart.errors import UsageError

__all__: list[str]
_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

EXTRA = ("flwr", "cryptography", "httpx", "psutil", "starlette", "tomli_w", "uvicorn")


def __getattr__(name: str) -> Any:
    try:
        return _find(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in EXTRA:
            raise
        raise UsageError(
            f"A federation needs {error.name}, which is not installed.", "Install it: pip install 'headstart[deploy]'"
        ) from error
