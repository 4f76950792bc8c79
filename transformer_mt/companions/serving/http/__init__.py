"""An HTTP server that speaks the LibreTranslate API.

In: requests. Out: JSON, translated files, and one web page. Begin with `server.py`.
"""
