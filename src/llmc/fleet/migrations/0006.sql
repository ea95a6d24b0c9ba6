-- How all nodes land: with two fences, neither would stop a push of the node that moves the other. One row.
create table llmc.agreement (
    is_only boolean primary key default true check (is_only),
    fence text not null,
    branch text not null
);

-- How long a node may be silent, by its own configuration: other nodes judge it by this.
alter table llmc.node add column lease interval not null default '60 seconds';
