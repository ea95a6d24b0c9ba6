"""The interactive terminal screen. `fleet_app.run` starts it; nothing else loads textual."""
