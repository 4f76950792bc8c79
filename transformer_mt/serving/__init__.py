"""Models behind an HTTP server that speaks the LibreTranslate API."""
