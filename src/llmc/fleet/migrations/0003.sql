-- What lands on the shared remote: each commit is entered before it is pushed. Rows are only added.
create table llmc.landing (
    commit text primary key,
    worker text not null,
    -- '' for work without a task
    list text not null,
    task text not null,
    -- of the claim
    token bigint not null,
    prompt text not null,
    -- the commit that this one reverts; '' if it reverts none
    reverts text not null,
    at timestamptz not null default now()
);
create index landing_of_task on llmc.landing (list, task);
create index landing_reverts on llmc.landing (reverts) where reverts <> '';

-- Who waits to land on a remote, in order; the first one lands.
create table llmc.turn (
    ticket bigint generated always as identity primary key,
    remote text not null,
    -- of the holder's connection, which ends with its process; a holder that sleeps keeps it, but not its lease
    backend int not null default pg_backend_pid(),
    until timestamptz not null
);
