"""Fleet: several machines share tasks and goals in one PostgreSQL database."""
