"""Every SQL statement on the fleet's tables. All times are by the database's clock.

A claim sends no notification, because commits that notify wait for each other.
"""

#: the channel that all nodes listen to
CHANNEL = "llmc"
#: most characters of a channel name; each node also listens to a channel of its own
MOST_CHANNEL = 63
_CHANNEL_OF = f"left('{CHANNEL}:' || node, {MOST_CHANNEL})"
#: why a node is called: a worker has an answer, or a task is ready
FOR_ANSWER, FOR_TASK = "answer", "task"


def channel_of(node: str) -> str:
    """The channel of a node, as in `_CHANNEL_OF`."""
    return f"{CHANNEL}:{node}"[:MOST_CHANNEL]


# Schema

MIGRATED = "select coalesce(max(number), 0) from llmc.migration"
PREPARE = """
select pg_advisory_xact_lock(hashtext('llmc'));
create schema if not exists llmc;
create table if not exists llmc.migration (
    number int primary key, applied timestamptz not null default now()
)
"""
APPLIED = "insert into llmc.migration (number) values (%s)"

# Nodes

JOIN = """
insert into llmc.node as n (name, instance, place, version, lease)
values (%(node)s, %(instance)s, %(place)s, %(version)s, %(lease)s)
on conflict (name) do update set place = %(place)s, version = %(version)s, seen = now()
    where n.instance = %(instance)s and (n.place = %(place)s or n.daemon = '' or n.seen < now() - n.lease)
returning name"""
_NODE = """
select name, instance, place, state, version, client, workers, attention, daemon <> '' as runs,
    extract(epoch from now() - seen)::float8 as silent_s, extract(epoch from lease)::float8 as lease_s,
    (select count(*) from llmc.task t where t.node = n.name and t.claim is not null) as claims
from llmc.node n where"""
NODE = f"{_NODE} name = %(node)s or %(node)s = '' order by name"
REPOSITORY = "select first_commit, address from llmc.repository"
ADD_REPOSITORY = """
insert into llmc.repository (first_commit, address) select unnest(%(first)s::text[]), %(address)s
on conflict do nothing"""
#: as first given; it binds while there are nodes
AGREEMENT = "select fence, branch from llmc.agreement"
AGREE = """
insert into llmc.agreement as a (fence, branch) values (%(fence)s, %(branch)s)
on conflict (is_only) do update set fence = a.fence returning fence, branch"""
END_AGREEMENT = "delete from llmc.agreement where not exists (select from llmc.node)"
START = """
with looks_again as (delete from llmc.waiting where node = %(node)s)
update llmc.node set daemon = %(daemon)s, place = %(place)s, version = %(version)s, lease = %(lease)s, seen = now()
where name = %(node)s and instance = %(instance)s and (place = %(place)s or daemon = '' or seen < now() - lease)
returning state"""
#: returns the nodes that need the user first, for the screens
_BEAT = """
with renewed as (
    update llmc.task set lease_until = now() + %(lease)s where node = %(node)s and claim = any(%(claims)s)
), kept as (
    update llmc.lease set until = now() + %(lease)s where node = %(node)s and until > now()
), commands as (
    update llmc.post_accept set until = now() + %(lease)s where node = %(node)s
), beat as (
    update llmc.node set seen = now(), client = %(client)s, workers = %(workers)s,
        attention = %(attention)s, day = %(day)s,
        day_cost = %(cost_today)s, day_tokens = %(tokens_today)s, run_cost = %(cost_of_run)s, run_tokens = %(tokens_of_run)s,
        parked_until = to_timestamp(%(parked)s), parked_cause = %(parked_cause)s, parked_reason = %(parked_reason)s
    where name = %(node)s and instance = %(instance)s and daemon = %(daemon)s returning state
)
select (select state from beat) as state, extract(epoch from now())::float8 as now_unix, o.*, p.*,
    (select count(*) from llmc.node where name <> %(node)s) as others,
    (select json_agg(n) from ({nodes} name <> %(node)s order by attention::text = '[]', name limit %(most)s) n) as nodes,
    exists (select from llmc.task where claim is not null and lease_until < now()) as expired,
    exists (select from llmc.task where list = %(list)s and {ready}) as ready,
    array(select array[list, task] from llmc.post_accept where node = %(node)s order by since) as due,
    array(select array[list, task] from llmc.post_accept where node <> %(node)s and wanted and until < now()
        order by since) as lost,
    exists (select from llmc.answer where node = %(node)s and outcome = 'pending') as answers,
    exists (select from llmc.lease where name = 'goals' and node = %(node)s and until > now()) as drives
from (select coalesce(sum(day_cost) filter (where day = %(day)s), 0)::float8 as cost_today,
        coalesce(sum(day_tokens) filter (where day = %(day)s), 0)::bigint as tokens_today,
        coalesce(sum(run_cost) filter (where daemon <> ''), 0)::float8 as cost_of_run,
        coalesce(sum(run_tokens) filter (where daemon <> ''), 0)::bigint as tokens_of_run
    from llmc.node where name <> %(node)s) o
left join lateral (select name as parked_node, parked_cause, parked_reason,
        extract(epoch from parked_until)::float8 as parked_unix
    from llmc.node where name <> %(node)s and parked_until > now() order by parked_until desc limit 1) p on true"""
STOP = """
update llmc.node set daemon = '', workers = '{}', attention = '[]', parked_until = null, seen = now()
where name = %(node)s and daemon = %(daemon)s"""
DRAIN = "update llmc.node set state = %(state)s where name = %(node)s returning name"
LEAVE = "delete from llmc.node where name = %(node)s returning name"
STOP_WAITING = "delete from llmc.waiting where node = %(node)s"
#: a node that left does not come back for its tasks
EXPIRE_NODE = "update llmc.task set lease_until = now() where node = %(node)s and claim is not null"

# Post-accept commands. A landed task has a row until its command has finished; while one is due, no other node lands.

ADD_POST_ACCEPT = """
insert into llmc.post_accept (list, task, worker, node, until, wanted)
values (%(list)s, %(id)s, %(worker)s, %(node)s, now() + %(lease)s, %(wanted)s)
on conflict (list, task) do update set worker = excluded.worker, node = excluded.node, until = excluded.until,
    wanted = excluded.wanted"""
TAKE_POST_ACCEPT = """
update llmc.post_accept set node = %(node)s, until = now() + %(lease)s, wanted = true
where list = %(list)s and task = %(task)s and (node = %(node)s or (wanted and until < now())) returning worker"""
END_POST_ACCEPT = """
delete from llmc.post_accept where list = %(list)s and task = %(task)s and node = %(node)s"""
EXPIRE_POST_ACCEPTS = "update llmc.post_accept set until = now() where node = %(node)s"
DROP_UNWANTED = "delete from llmc.post_accept where node = %(node)s and not wanted"

#: one node at a time has a lease, and keeps it until it expires
LEASE = """
insert into llmc.lease as l (name, node, until) values (%(name)s, %(node)s, now() + %(lease)s)
on conflict (name) do update set node = excluded.node, until = excluded.until
    where l.node = excluded.node or l.until < now()
returning name"""
END_LEASES = "delete from llmc.lease where node = %(node)s"

# Answers to questions of workers on other nodes

_ANSWER = """id, node, worker, question, text, sender, outcome, reason, prompt_id, elapsed_ms,
    extract(epoch from now() - at)::float8 as age_s"""
ADD_ANSWER = """
with old as (delete from llmc.answer where ended < now() - interval '7 days')
insert into llmc.answer (node, worker, question, text, sender)
values (%(node)s, %(worker)s, %(question)s, %(text)s, %(sender)s) returning id"""
CALL_NODE = f"select pg_notify({_CHANNEL_OF}, '{FOR_ANSWER}') from (select %(node)s::text as node) called"
ONE_ANSWER = f"select {_ANSWER} from llmc.answer where id = %(id)s"
#: for one node, answers without a receipt; for all nodes, also recent ones that were not delivered
OPEN_ANSWERS = f"""
select {_ANSWER} from llmc.answer where (outcome = 'pending' and %(node)s in ('', node))
    or (%(node)s = '' and outcome not in ('acknowledged', 'queued') and ended > now() - interval '1 day')
order by id"""
#: before it is typed: a daemon that is started again can find out what became of it
BEGIN_ANSWER = """
update llmc.answer set prompt_id = %(prompt_id)s where id = %(id)s and outcome = 'pending' returning id"""
END_ANSWER = """
update llmc.answer set outcome = %(outcome)s, reason = %(reason)s, prompt_id = %(prompt_id)s,
    elapsed_ms = %(elapsed_ms)s, ended = now()
where id = %(id)s and outcome = 'pending'"""
#: a node that left delivers no answers; one that it had begun to type may have arrived
REFUSE_ANSWERS = """
update llmc.answer set outcome = case prompt_id when '' then 'refused' else 'unconfirmed' end, reason = 'node ' || node || ' left the fleet', ended = now()
where node = %(node)s and outcome = 'pending'"""

# Events. A node's clock may be wrong, so only the age of an event counts, at the time when the node sends it.

EVENT_SEQ = "select event_seq from llmc.node where name = %(node)s and instance = %(instance)s"
ADD_EVENTS = """
with node as (
    select event_seq from llmc.node where name = %(node)s and instance = %(instance)s
), added as (
    insert into llmc.event (node, at, payload)
    select %(node)s, now() - make_interval(secs => greatest(0, %(now)s - (e ->> 'ts')::float8)), e
    from node, json_array_elements(%(events)s::json) e where (e ->> 'seq')::bigint > event_seq
), old as (
    delete from llmc.event where id in (
        select id from (select id, at from llmc.event order by id limit 1000) first
        where at < now() - make_interval(days => %(keep)s)
            or id <= (select max(id) from llmc.event) - %(most)s)
)
update llmc.node set event_seq = greatest(event_seq, %(last)s) where name = %(node)s and instance = %(instance)s
returning case when not pg_try_advisory_xact_lock(hashtext('llmc.event')) then pg_notify('llmc_event', '') end"""
#: a follower holds a lock, and nodes notify only while there is one; lock and `listen` end with the connection
FOLLOW_EVENTS = "listen llmc_event; select pg_advisory_lock_shared(hashtext('llmc.event'))"
_EVENT = "select id, node, extract(epoch from at)::float8 as ts, payload from llmc.event where"
EVENTS = f"{_EVENT} at >= to_timestamp(%(since)s) order by at, id"
NEW_EVENTS = f"{_EVENT} id > %(after)s or id = any(%(missing)s) order by id"
#: rows may still appear for missing numbers below the last one
LAST_EVENT = """
select last, array(select n from generate_series(greatest(1, last - 1000), last) n
    where not exists (select from llmc.event where id = n)) as missing
from (select coalesce(max(id), 0) as last from llmc.event) e"""
CLOCK = "select extract(epoch from now())::float8 as now_unix"

# Tasks

_OPEN = "status = 'pending' and waits = 0 and held = '' and owner = '' and not removed"
READY = f"{_OPEN} and (not_before is null or not_before <= now())"
_NEEDS = "array(select needs from llmc.dependency d where (d.list, d.task) = (t.list, t.id) order by needs)"
BEAT = _BEAT.format(ready=READY, nodes=_NODE)
COLUMNS = f"""t.list, t.id, t.subject, t.description, t.status, t.metadata, t.owner, t.claim, t.removed, t.waits, extract(epoch from t.written)::float8 as written_unix, {_NEEDS} as needs"""
TASKS = f"select {COLUMNS} from llmc.task t where list = %(list)s and not removed"
SOME_TASKS = f"select {COLUMNS} from llmc.task t where list = %(list)s and id = any(%(ids)s) and not removed"
TASK = f"select {COLUMNS} from llmc.task t where list = %(list)s and id = %(id)s"
LOCK_TASK = f"{TASK} for update"
NEXT_NUMBER = """
insert into llmc.list as l (name, highest) values (%(list)s, 1)
on conflict (name) do update set highest = l.highest + 1 returning highest"""
INSERT_TASK = """
insert into llmc.task (list, id, number, subject, description, status, priority, label, metadata, owner, held)
values (%(list)s, %(id)s, %(number)s, %(subject)s, %(description)s, %(status)s, %(priority)s, %(label)s,
    %(metadata)s, %(owner)s, %(held)s)"""
UPDATE_TASK = """
update llmc.task set subject = %(subject)s, description = %(description)s, status = %(status)s,
    priority = %(priority)s, label = %(label)s, metadata = %(metadata)s, owner = %(owner)s, held = %(held)s,
    claim = %(claim)s, node = case when %(claim)s::bigint is null then '' else node end,
    lease_until = case when %(claim)s::bigint is null then null else lease_until end,
    not_before = now() + %(wait)s, removed = %(removed)s, written = now()
where list = %(list)s and id = %(id)s"""

# Dependencies. A task is locked before its dependents are counted, so that none of them waits forever.

LOCK_NEEDED = (
    "select id, status from llmc.task where list = %(list)s and id = any(%(ids)s) order by id for share"
)
ADD_NEEDS = """
insert into llmc.dependency (list, task, needs) select %(list)s, %(id)s, unnest(%(ids)s::text[])
on conflict do nothing"""
DROP_NEEDS = """
delete from llmc.dependency where list = %(list)s and task = %(id)s and not needs = any(%(ids)s)"""
COUNT_WAITS = f"""
update llmc.task t set waits = (select count(*) from llmc.dependency d
    left join llmc.task n on (n.list, n.id) = (d.list, d.needs)
    where (d.list, d.task) = (t.list, t.id) and n.status is distinct from 'completed')
where t.list = %(list)s and t.id = any(%(ids)s) returning {READY} as is_ready"""
DEPENDENTS_WAIT = f"""
update llmc.task t set waits = t.waits + %(change)s from llmc.dependency d
where (d.list, d.needs) = (%(list)s, %(id)s) and (t.list, t.id) = (d.list, d.task)
returning {READY} as is_ready"""
OPEN_NEEDS = """
select d.task, d.needs, n.id is null or n.removed as missing from llmc.dependency d
join llmc.task t on (t.list, t.id) = (d.list, d.task) left join llmc.task n on (n.list, n.id) = (d.list, d.needs)
where d.list = %(list)s and t.status <> 'completed' and not t.removed and n.status is distinct from 'completed'"""

COUNTS = """
select case when status <> 'pending' then status when held <> '' then held
    when owner <> '' then 'in_progress' when waits > 0 then 'waits' else 'ready' end as state, count(*)
from llmc.task where list = %(list)s and not removed group by 1 order by 1"""

# Claims

_CLAIM = """
with chosen as (
    select list, id from llmc.task t where list = %(list)s and {which} and {ready}
    order by priority, number, id limit 1 for update skip locked
), taken as (
    update llmc.task t set status = 'in_progress', owner = %(node)s || '/' || %(worker)s, node = %(node)s,
        claim = nextval('llmc.fence'), lease_until = now() + %(lease)s, written = now()
    from chosen c where (t.list, t.id) = (c.list, c.id)
    returning {columns}
), noted as (
    insert into llmc.entry (node, worker, list, task, action, claim, details)
    select %(node)s, %(worker)s, list, id, 'claimed', claim::text, json_build_object('subject', subject,
        'dispatch', metadata #>> '{{llmc,goal,dispatchId}}', 'part',
        nullif(concat_ws('/', metadata #>> '{{llmc,goal,goalId}}', metadata #>> '{{llmc,goal,workNodeId}}'), ''))
    from taken
)
select * from taken"""
CLAIM_ONE = _CLAIM.format(which="id = %(id)s", ready=READY, columns=COLUMNS)
CLAIM_NEXT = _CLAIM.format(which="true", ready=READY, columns=COLUMNS)
#: tried before CLAIM_NEXT: tasks with a label that is in progress come last
CLAIM_NEXT_BESIDE = _CLAIM.format(which="not label = any(%(labels)s)", ready=READY, columns=COLUMNS)
RENEW = """
update llmc.task set lease_until = now() + %(lease)s where claim = %(claim)s and node = %(node)s returning id"""
#: a node with more free workers than there are ready tasks waits to be called; `began`: it has just begun to wait
LOOK = f"""
with ready as (
    select count(*) from (select from llmc.task where list = %(list)s and {READY} limit %(most)s) ready
), began as (
    insert into llmc.waiting (node, list) select %(node)s, %(list)s from ready where count < %(free)s
    on conflict (node) do nothing returning node
)
select count as ready, exists (select from began) as began, case when count = 0 then (
    select extract(epoch from min(not_before) - now())::float8 from llmc.task
    where list = %(list)s and {_OPEN} and not_before > now()) end as after_crash_s
from ready"""
#: seconds until the first of these tasks can start; null: none can
WAIT_OF = f"""
select extract(epoch from min(greatest(coalesce(not_before, now()), now())) - now())::float8 as wait_s from llmc.task
where (list, id) in (select * from unnest(%(lists)s::text[], %(ids)s::text[])) and {_OPEN}"""
#: skips silent nodes, which would not answer
CALL_WAITING = f"""
with chosen as (
    select node from llmc.waiting w where list = %(list)s
        and exists (select from llmc.node n where n.name = w.node and daemon <> '' and seen > now() - n.lease)
    limit %(most)s for update skip locked
), called as (
    delete from llmc.waiting w using chosen c where w.node = c.node returning w.node
)
select pg_notify({_CHANNEL_OF}, '{FOR_TASK}') from called"""
HELD = f"""
select {COLUMNS} from llmc.task t where list = %(list)s and held <> '' and status <> 'completed' and not removed"""
EXPIRE = """
with gone as (
    select list, id, claim, node, owner from llmc.task
    where claim is not null and lease_until < now() limit 100 for update skip locked
), freed as (
    update llmc.task t set status = 'pending', owner = '', claim = null, node = '', lease_until = null,
        written = now()
    from gone g where (t.list, t.id) = (g.list, g.id)
)
insert into llmc.entry (node, worker, list, task, action, claim, details)
select node, substr(owner, length(node) + 2), list, id, 'released', claim::text,
    json_build_object('cause', 'node', 'reason', 'node ' || node || ' was out of contact for too long') from gone
returning list, task, node"""

# Entries

ENTER = """
insert into llmc.entry (node, worker, list, task, action, claim, details)
values (%(node)s, %(worker)s, %(list)s, %(task)s, %(action)s, %(claim)s, %(details)s)"""
ENTRIES = """
select seq, extract(epoch from at)::float8 as ts, node, worker, list, task, action, claim, details
from llmc.entry where seq > %(after)s or seq = any(%(missing)s) order by seq"""
NOTIFY = f"select pg_notify('{CHANNEL}', %(list)s)"

# Landings

#: the token must be that of the current claim; a node that lands is alive, so its lease is renewed
HOLDS_TASK = """
update llmc.task set lease_until = now() + %(lease)s
where list = %(list)s and id = %(task)s and claim = %(token)s returning id"""
ENTER_LANDING = """
insert into llmc.landing (commit, worker, list, task, token, prompt, reverts)
values (%(commit)s, %(worker)s, %(list)s, %(task)s, %(token)s, %(prompt)s, %(reverts)s)
on conflict (commit) do nothing"""
_LANDING = "commit, worker, list, task, token, prompt, reverts, extract(epoch from at)::float8 as at_unix"
LANDINGS_OF_TASK = f"""
with own as (select commit from llmc.landing where list = %(list)s and task = %(task)s)
select {_LANDING} from llmc.landing
where commit in (select commit from own) or reverts in (select commit from own) order by at, commit"""
LANDINGS_AMONG = f"select {_LANDING} from llmc.landing where commit = any(%(commits)s) order by at, commit"

# Turns. Tickets are taken one after the other, so that no lower ticket appears after a higher one was first.

ORDER_TICKETS = "select pg_advisory_xact_lock(hashtext('llmc.turn'))"
DROP_TICKETS = "delete from llmc.turn where remote = %(remote)s and until < now()"
TAKE_TICKET = """
insert into llmc.turn (remote, until) values (%(remote)s, now() + %(lease)s) returning ticket"""
#: renews a ticket that has not expired; returns how many are before it, and another node's command that comes first
KEEP_TICKET = """
with kept as (
    update llmc.turn set until = now() + %(lease)s, backend = pg_backend_pid()
    where ticket = %(ticket)s and until >= now() returning ticket
)
select exists (select from kept) as kept, count(*) as before,
    (select 'the post-accept command of task ' || task || ' on node ' || node from llmc.post_accept
        where node <> %(node)s and wanted order by since limit 1)
        as command
from llmc.turn t
where remote = %(remote)s and ticket < %(ticket)s and until >= now()
    and exists (select from pg_stat_activity a where a.pid = t.backend)"""
END_TURN = "delete from llmc.turn where ticket = %(ticket)s"
