"""The web page: the same views and operations as the terminal screen, in a browser."""
