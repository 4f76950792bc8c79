"""From lines of text to translations: segments, engines, results."""
