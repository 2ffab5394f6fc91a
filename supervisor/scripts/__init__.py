"""Apps that a script makes and serves with uvicorn: run as `python script.py` runs it, up to its call and after it."""
