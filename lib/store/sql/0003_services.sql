-- Schema 3: commands that are kept running. They go when their sandbox is deleted.
CREATE TABLE services (
  sandbox    TEXT NOT NULL,
  name       TEXT NOT NULL,
  tenant     TEXT NOT NULL,
  spec_json  TEXT NOT NULL,
  state      TEXT NOT NULL,
  exec       TEXT NOT NULL,
  restarts   INTEGER NOT NULL,
  last_json  TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  PRIMARY KEY (sandbox, name)
) STRICT;
