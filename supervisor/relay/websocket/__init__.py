"""WebSockets of another worker's session: the ASGI conversation between a client's server and the owner's app."""
