"""Handing a client's connection itself to the worker that owns its session, where that is cheaper than relaying."""
