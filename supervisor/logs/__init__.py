"""Log lines: what they look like, and how they are written without ever waiting for their reader."""
