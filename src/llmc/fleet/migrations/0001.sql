-- Tokens of claims: a later claim has a higher one.
create sequence llmc.fence;

create table llmc.node (
    name text primary key,
    -- the root; a copy of a root has the same one
    instance text not null,
    -- where that root is: host and path
    place text not null,
    state text not null default 'joined' check (state in ('joined', 'draining')),
    version text not null default '',
    client text not null default '',
    -- name -> status
    workers json not null default '{}',
    -- what needs the user there: severity, who, text and the next command of each
    attention json not null default '[]',
    -- the daemon that has the name; '' while none runs
    daemon text not null default '',
    -- what it has used: on its calendar day, and since its daemon started
    day date,
    day_cost float8 not null default 0,
    day_tokens bigint not null default 0,
    run_cost float8 not null default 0,
    run_tokens bigint not null default 0,
    -- a limit of the account stopped it, and so stops all
    parked_until timestamptz,
    parked_cause text not null default '',
    parked_reason text not null default '',
    joined timestamptz not null default now(),
    seen timestamptz not null default now()
);

-- The highest number that a list ever had.
create table llmc.list (
    name text primary key,
    highest bigint not null default 0
);

create table llmc.task (
    list text not null,
    id text not null,
    -- for the order: names come after numbers
    number bigint not null,
    subject text not null,
    description text not null,
    status text not null check (status in ('pending', 'in_progress', 'completed')),
    priority int not null,
    label text not null,
    metadata json not null,
    -- node/worker for a claim; what a person wrote otherwise
    owner text not null default '',
    -- why the user has to act first; '' if nothing holds it
    held text not null default '',
    -- how many of its dependencies are not completed
    waits int not null default 0,
    -- after a crash of its agent
    not_before timestamptz,
    -- the token of the claim on it
    claim bigint,
    node text not null default '',
    lease_until timestamptz,
    -- the row stays, so that its number is not used again
    removed boolean not null default false,
    written timestamptz not null default now(),
    primary key (list, id)
);

create index task_ready on llmc.task (list, priority, number, id)
    where status = 'pending' and waits = 0 and held = '' and owner = '' and not removed;
create index task_claimed on llmc.task (lease_until) where claim is not null;
create index task_of_node on llmc.task (node) where claim is not null;
create index task_held on llmc.task (list) where held <> '' and status <> 'completed' and not removed;

-- A file is imported once.
create unique index task_of_file on llmc.task (list, (metadata #>> '{llmc,key}'))
    where metadata #>> '{llmc,key}' like 'file:%';

create table llmc.dependency (
    list text not null,
    task text not null,
    needs text not null,
    primary key (list, task, needs)
);

create index dependency_needs on llmc.dependency (list, needs);

-- The ledger: what llmc did with tasks. Rows are only added.
create table llmc.entry (
    seq bigint generated always as identity primary key,
    at timestamptz not null default now(),
    node text not null,
    worker text not null,
    list text not null,
    task text not null,
    action text not null,
    claim text not null,
    details json not null default '{}'
);
