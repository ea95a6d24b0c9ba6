"""What contained agents could not connect to: told once for each host, and listed until it is allowed or ignored.

The proxy of an agent (sandbox/proxy.py) counts in a file beside the agent's home, which the agent cannot see.
"""

from llmc.base.hosts import Host, allow_command, host_of, is_listed
from llmc.records.store import Transaction
from llmc.records.worker import RefusedHost, WorkerRecord
from llmc.repo.project import Project
from llmc.sandbox.network import refused, relist

#: the item of the attention list, for all workers: one command allows all of their hosts
ITEM = "refused_hosts"
#: hosts that its text names
MOST_NAMED = 5


def settle(project: Project, record: WorkerRecord) -> WorkerRecord:
    """Give the proxy the hosts as configured now, and record what it refused. The caller holds the worker's lock."""
    files = str(project.root.homes / record.name)
    config = project.config.sandbox
    is_new_list = relist(files, config.hosts)
    found = _still_refused(refused(files), list(map(host_of, (*config.hosts, *config.ignored_hosts))))
    if found == record.refused_hosts and not is_new_list:
        return record
    known = {one.host for one in record.refused_hosts}
    news = [one for one in found if one.host not in known]
    with project.store.transaction() as tx:
        record = tx.update(record.name, refused_hosts=found)
        for one in news:
            tx.emit("host_refused", worker=record.name, reason=one.why, host=one.host, allow=one.allow)
        tell(project, tx)
    for one in news:
        project.store.note(record.name, f"could not connect to {one.host}: {one.why}")
    return record


def _still_refused(rows: list[RefusedHost], listed: list[Host]) -> tuple[RefusedHost, ...]:
    """Without those that the configuration allows or ignores by now: the proxy counts them until the agent ends."""
    return tuple(row for row in rows if not row.allow or not _is_any(host_of(row.allow), listed))


def _is_any(host: Host, listed: list[Host]) -> bool:
    return any(is_listed(listed, host.name, port) for port in host.ports)


def tell(project: Project, tx: Transaction) -> None:
    """Put on the attention list what the agents of all workers could not connect to, and the command that allows it."""
    told = {one.host: one for worker in tx.state.workers.values() for one in worker.refused_hosts}
    if not told:
        tx.clear_item(ITEM)
        return
    names = list(told)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    who = [name for name, worker in tx.state.workers.items() if worker.refused_hosts]
    text = f"contained agents ({', '.join(who)}) could not connect to {', '.join(names[:MOST_NAMED])}{more}"
    allow = allow_command(project.config.sandbox.hosts, [one.allow for one in told.values()])
    about = {"kind": "refused_hosts", "severity": "notice", "who": "network"}
    tx.raise_item(ITEM, text=text, next=allow, **about)
