-- Landed tasks whose post-accept command has not finished.
create table llmc.post_accept (
    list text not null,
    task text not null,
    -- node/worker that landed it
    worker text not null,
    -- who runs the command; another node takes it over when the lease has run out
    node text not null,
    until timestamptz not null,
    -- that node has a command, so nothing lands before it has finished
    wanted boolean not null,
    since timestamptz not null default now(),
    primary key (list, task)
);

-- Answers to a question of a worker on any node; that node delivers them.
create table llmc.answer (
    id bigint generated always as identity primary key,
    node text not null,
    worker text not null,
    -- as the sender saw it: an answer to another question is refused
    question text not null,
    text text not null,
    -- the node on which it was typed
    sender text not null,
    at timestamptz not null default now(),
    -- as the receipt of `llmc answer` has it
    outcome text not null default 'pending',
    reason text not null default '',
    prompt_id text not null default '',
    elapsed_ms int not null default 0,
    ended timestamptz
);
create index answer_pending on llmc.answer (node) where outcome = 'pending';

-- What happened on each node, for `digest --fleet` and `events --fleet`. Old rows are removed.
create table llmc.event (
    id bigint generated always as identity primary key,
    node text not null,
    -- by this database's clock
    at timestamptz not null,
    -- as in the event log of the node
    payload json not null
);
create index event_at on llmc.event (at);

-- The number of the last row of its event log that a node has sent.
alter table llmc.node add column event_seq bigint not null default 0;

-- The repository of the fleet: the first commits of its branch, and where the first node lands.
create table llmc.repository (
    first_commit text primary key,
    address text not null
);
