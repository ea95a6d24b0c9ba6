"""Hosts that contained agents could not connect to: reported once each, and listed until allowed or ignored.

An agent's proxy (sandbox/proxy.py) counts them in a file beside the agent's home, where the agent cannot see it.
"""

from llmc.base.hosts import Host, allow_command, host_of, is_listed
from llmc.records.store import Transaction
from llmc.records.worker import RefusedHost, WorkerRecord
from llmc.repo.project import Project
from llmc.sandbox.network import refused, relist

#: the attention item, one for all workers: its command allows all of their hosts
ITEM = "refused_hosts"
#: most hosts named in its text
MOST_NAMED = 5


def settle(project: Project, record: WorkerRecord) -> WorkerRecord:
    """Update the proxy's list of hosts, and record the hosts it refused. The caller holds the worker's lock."""
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
    """Leave out hosts that the configuration now allows or ignores: the proxy lists them until the agent exits."""
    return tuple(row for row in rows if not row.allow or not _is_any(host_of(row.allow), listed))


def _is_any(host: Host, listed: list[Host]) -> bool:
    return any(is_listed(listed, host.name, port) for port in host.ports)


def tell(project: Project, tx: Transaction) -> None:
    """Update the attention item: the hosts that any worker's agent could not reach, and the command to allow them."""
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
