"""The terminal screen: the fleet under your fingers. `app.run` starts it; textual is loaded by nothing else."""
