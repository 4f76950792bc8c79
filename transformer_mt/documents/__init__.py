"""Documents: HTML and subtitles. What is text is translated, all else stays."""
