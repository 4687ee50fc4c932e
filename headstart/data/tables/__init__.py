"""Bring your own data: tables, folders, images, arrays and frames as federations."""

from headstart.data.tables.choices import Choices, Options
from headstart.data.tables.encoding import Encoding
from headstart.data.tables.loading import (
    Form,
    arrays,
    folder,
    form_of,
    images,
    open_data,
    partitioned,
    prepare,
    prepared,
    table,
)
from headstart.data.tables.memory import memory_needed
from headstart.data.tables.prepared import open_prepared
from headstart.data.tables.reading import source_of
from headstart.data.tables.splitting import commonest_class
from headstart.data.tables.stored import stored_rows

__all__ = [
    "Choices",
    "Encoding",
    "Form",
    "Options",
    "arrays",
    "commonest_class",
    "folder",
    "form_of",
    "images",
    "memory_needed",
    "open_data",
    "open_prepared",
    "partitioned",
    "prepare",
    "prepared",
    "source_of",
    "stored_rows",
    "table",
]
