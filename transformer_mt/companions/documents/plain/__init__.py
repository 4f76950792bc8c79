"""Plain text with structure: hard-wrapped paragraphs, Markdown."""
