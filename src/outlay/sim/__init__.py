"""Virtual time: users, paths, servers and faults, in which routers are tried against one another."""
