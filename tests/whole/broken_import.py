"""An app that cannot be imported."""

app = None

raise RuntimeError("the app's import fails here")
