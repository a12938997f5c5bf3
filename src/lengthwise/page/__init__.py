"""The laboratory in a browser: a server on this machine, and models that run in one HTML file."""
