"""What a person does about a worker that cannot do what was asked of it now: a command that would work. Pure."""

from llmc.workers.model import Status, WorkerRecord


def advice(record: WorkerRecord) -> str:
    """The next command, in a sentence."""
    name = record.name
    match record.status:
        case Status.OFFLINE:
            return "Run `llmc up --detach` to start it."
        case Status.IDLE:
            return f"It has no task: `llmc start --worker {name}`."
        case Status.NO_CHANGES:
            return f"It says that nothing has to change: `llmc message {name} ...` or `llmc reset {name}`."
        case Status.NEEDS_INPUT:
            return f"It waits for you ({record.reason}): `llmc message {name} ...` or `llmc attach {name}`."
        case Status.NEEDS_REVIEW:
            return f"Its work waits: `llmc review {name}`, then `llmc accept {name}` or `llmc reject {name}`."
        case Status.ERROR:
            reason = (record.error_reason or "See its log").rstrip(".")
            return f"{reason}. `llmc message {name} ...` goes on with it; `llmc reset {name}` makes it idle."
        case _:
            return f"Wait for it: `llmc wait {name} --status needs_review`."
