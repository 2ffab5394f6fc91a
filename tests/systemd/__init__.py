"""Units under a real systemd. A package, so that a distribution of the same name does not come first."""
