"""A Report as terminal text, Markdown, HTML and JSON: `text`, `markdown`, `html`, `machine`."""
