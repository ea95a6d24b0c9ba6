-- Nodes that have a free worker and found no task for it: for each task that becomes ready, one of them is called.
-- After a crash of the server the table is empty; the nodes look again, because their connections broke.
create unlogged table llmc.waiting (
    node text primary key,
    list text not null
);
create index waiting_for on llmc.waiting (list);
