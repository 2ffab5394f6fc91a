"""The load: sessions and connections of clients."""
