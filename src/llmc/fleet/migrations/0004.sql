-- Landed tasks whose post-accept command has not finished.
create table llmc.post_accept (
    list text not null,
    task text not null,
    -- node/worker that landed it
    worker text not null,
    -- who runs the command; another node takes it over when the lease has run out
    node text not null,
    until timestamptz not null,
    since timestamptz not null default now(),
    primary key (list, task)
);
