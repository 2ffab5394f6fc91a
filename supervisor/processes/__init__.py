"""Processes: the guardian, forking, what a child does to itself, the link to it, its death and what it leaves."""
