"""For the site: search of pages that are opened as files needs nothing from elsewhere."""

from typing import Any

from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ELSEWHERE = "https://unpkg.com/iframe-worker/shim"
HERE = "javascripts/worker_on_files.js"


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Takes the script from the site, which the theme would take from a server."""
    return output.replace(ELSEWHERE, get_relative_url(HERE, page.url))


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """So too on the page that says that there is none."""
    return output_content.replace(ELSEWHERE, HERE) if template_name == "404.html" else output_content
