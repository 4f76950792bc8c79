"""Models behind an HTTP server that speaks the LibreTranslate API.

In: requests. Out: JSON, and one web page. Lines of many requests are translated together.
Begin with `app.py`.
"""
