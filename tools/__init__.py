"""Scripts that make the documentation: pages, hooks of the site, docstrings as Markdown."""
