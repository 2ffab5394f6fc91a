"""What runs in a worker's process: uvicorn with the app, under the supervisor's command. `main.main` is its entry."""
