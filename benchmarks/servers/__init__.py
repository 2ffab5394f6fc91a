"""What is measured: the apps, and the ways to serve them."""

COOKIE = "session"
SECRET = "benchmark"  # of both apps' session cookies: clients sign their own with it
